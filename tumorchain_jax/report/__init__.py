"""Reports: report.json for programs, report.html for people."""
