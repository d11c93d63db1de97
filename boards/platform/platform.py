"""PlatformIO development platform: the system's GCC in, QEMU out. Nothing is downloaded."""

import importlib.util
import os
import shutil

from platformio.package.manager.core import get_core_package_dir
from platformio.public import PlatformBase


class EmitcPlatform(PlatformBase):
    def configure_default_packages(self, options, targets):
        # PlatformIO takes SCons and cppcheck from its registry. Where they were never downloaded, lend it the wrappers
        # in tools/ round the ones on this machine; a user who has the official packages keeps them.
        here = {
            "tool-scons": importlib.util.find_spec("SCons"),
            "tool-cppcheck": shutil.which("cppcheck"),
        }
        for name, found in here.items():
            if found and not get_core_package_dir(name, auto_install=False):
                self.packages[name] = {
                    "owner": "platformio",
                    "version": "symlink://" + os.path.join(self.get_dir(), "tools", name),
                }
        return super().configure_default_packages(options, targets)
