/* two_models: a hand-drawn digit and a second of flat sound, each through its own model. */
#include <stdio.h>

#include "digits.h"
#include "kws.h"

static const char drawing[] = "                                      ########          ##########                 ##  "
                              "            ##              ##            ####          ######              ######      "
                              "            ####              ##              ##    ##        ##    ##########          "
                              "######                          ";
_Static_assert(sizeof drawing - 1 == DIGITS_INPUT_0_ELEMENTS, "16 rows of 16 pixels");

static _Alignas(DIGITS_ARENA_ALIGN) unsigned char digits_arena[DIGITS_ARENA_BYTES];
static _Alignas(KWS_ARENA_ALIGN) unsigned char kws_arena[KWS_ARENA_BYTES];
