"""What a person and a program read at the end: report.html and report.json."""
