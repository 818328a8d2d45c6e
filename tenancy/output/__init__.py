"""Forms of output that several commands share: tables as text and Markdown, HTML pages and charts."""
