import sys

from SCons.Script.Main import main

sys.exit(main())
