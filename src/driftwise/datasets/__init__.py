"""Pictures and labels as uint8 arrays: readers, downloads, the cache, and how rows are cut."""
