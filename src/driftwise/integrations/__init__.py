"""In other people's trainers and stores; each module needs the package that it is named after."""
