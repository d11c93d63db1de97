/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* printf() for those who want it: newlib (Arm) or picolibc (RISC-V) on top of emitc_write(). */
#include "emitc_board.h"

#include <stddef.h>

#ifdef __PICOLIBC__

#include <stdio.h>

static int put(char c, FILE *file)
{
    (void)file;
    emitc_write(&c, 1);
    return 0;
}

static FILE console = FDEV_SETUP_STREAM(put, NULL, NULL, _FDEV_SETUP_WRITE);
FILE *const stdout = &console;
FILE *const stderr = &console;

#else

#include <sys/stat.h>

extern char __heap_start[];

int _write(int file, const char *text, int length);
int _write(int file, const char *text, int length)
{
    (void)file;
    emitc_write(text, (uint32_t)length);
    return length;
}

void *_sbrk(ptrdiff_t bytes);
void *_sbrk(ptrdiff_t bytes)
{
    static char *top = __heap_start;
    char *const old = top;
    top += bytes;
    return old;
}

int _read(int file, char *text, int length);
int _read(int file, char *text, int length)
{
    (void)file;
    (void)text;
    (void)length;
    return 0;
}

int _close(int file);
int _close(int file)
{
    (void)file;
    return -1;
}

int _lseek(int file, int offset, int whence);
int _lseek(int file, int offset, int whence)
{
    (void)file;
    (void)offset;
    (void)whence;
    return 0;
}

int _fstat(int file, struct stat *status);
int _fstat(int file, struct stat *status)
{
    (void)file;
    status->st_mode = S_IFCHR;
    return 0;
}

int _isatty(int file);
int _isatty(int file)
{
    (void)file;
    return 1;
}

int _getpid(void);
int _getpid(void)
{
    return 1;
}

int _kill(int process, int signal);
int _kill(int process, int signal)
{
    (void)process;
    (void)signal;
    return -1;
}

void _exit(int code);
void _exit(int code)
{
    emitc_exit(code);
    for (;;) {
    }
}

#endif
