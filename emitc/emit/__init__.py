"""Program to text: names, literals, rendering, packaging. Nothing here decides on an operator, a type or a target."""
