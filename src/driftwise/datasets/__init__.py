"""Images and labels as uint8 arrays: readers, downloads, the cache, and how samples are cut."""
