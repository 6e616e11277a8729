"""The page and the parts its sections share: data, tables, links, words, templates."""
