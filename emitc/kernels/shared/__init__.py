"""Loop shapes and checks that several families of operators use. No operator is defined here."""
