"""What was found, shown: sheets of pictures, pages, lines in a terminal."""
