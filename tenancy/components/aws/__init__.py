"""Components of AWS' resources."""
