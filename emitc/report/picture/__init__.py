"""Pictures of memory plans: steps to the right, addresses upwards, one rectangle for every buffer.

`svg` draws, `page` puts the drawing and a table into one file of HTML. Neither loads anything from elsewhere, and neither
writes a file. Names come from models and are hostile text: nothing of them gets out of its place.
"""

from emitc.report.picture.model import Bar, Panel, Picture, StepLabel, arena_picture
from emitc.report.picture.svg import HTML_MARK, SVG_MARK, html_page, plan_svg

__all__ = ["HTML_MARK", "SVG_MARK", "Bar", "Panel", "Picture", "StepLabel", "arena_picture", "html_page", "plan_svg"]
