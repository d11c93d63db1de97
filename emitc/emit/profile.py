"""What `--profile` adds to a package."""

from emitc.emit.package import runtime_files

PROFILE_HEADER = "emitc_profile.h"


def profile_files(wanted: bool) -> dict[str, str]:
    """The header that records when each layer ended, by its name; nothing where it is not wanted."""
    return {PROFILE_HEADER: runtime_files()[PROFILE_HEADER].read_text(encoding="ascii")} if wanted else {}
