"""Raw images and captions as people have them: files, tables, tars; what is readable and what is not."""
