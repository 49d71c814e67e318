"""Equality of nested states, to the last bit."""

from driftwise.testing import same as same
