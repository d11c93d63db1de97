"""Packages of every operator."""
