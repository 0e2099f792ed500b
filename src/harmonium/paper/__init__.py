"""Tables, figures and claims of Lalisse & Smolensky, reproduced."""
