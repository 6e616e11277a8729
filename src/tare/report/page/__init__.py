"""The page and what all of its sections share: data, tables, links, words, templates."""
