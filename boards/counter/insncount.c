/* A TCG plugin for qemu-system-*: counts executed guest instructions between two marker addresses, and cuts the count at
   a hook inside.

     -plugin libinsncount.so,begin=ADDRESS,end=ADDRESS,out=FILE[,hook=ADDRESS,resume=ADDRESS][,places=1]
             [,constants=ADDRESS,constants_end=ADDRESS]

   begin   the counter starts at 0            writes "begin"
   hook    the counter is written: "cut N"    what follows, up to `resume`, is not counted
   resume  the counter starts at 0 again
   end     the counter is written: "end N"
   places  with 1: before "end", each instruction that ran since "begin", and how often: "at ADDRESS N"
   constants, constants_end
           before "end", the bytes that loads read from there since "begin": "constants N"
   The instructions at the four addresses are never counted themselves.

   The few declarations of the plugin interface (API version 1) that are used stand here, so that no QEMU header is needed:
     cc -O2 -shared -fPIC -o libinsncount.so insncount.c */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { CB_NO_REGS = 0, INLINE_ADD_U64 = 0, MEM_RW = 3 };

typedef uint64_t qemu_plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id,
                                                  void (*)(qemu_plugin_id, struct qemu_plugin_tb *));
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned int, void *), int, void *);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int, void *, uint64_t);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
                                             void (*)(unsigned int, uint32_t, uint64_t, void *), int, int, void *);
extern unsigned int qemu_plugin_mem_size_shift(uint32_t);
extern bool qemu_plugin_mem_is_store(uint32_t);

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(qemu_plugin_id id, const void *info, int argc, char **argv);

enum marker { BEGIN, END, HOOK, RESUME, MARKERS };
enum { CONSTANTS = MARKERS, CONSTANTS_END, ADDRESSES };

static uint64_t address[ADDRESSES];
static uint64_t constants_read;
static uint64_t executed;
static bool counting;
enum { PLACES = 1 << 16 };
struct place {
    uint64_t address;
    uint64_t executed;
    bool used;
};
static struct place *places; /* by address; NULL where they are not asked for */
static size_t places_used;
static FILE *out;

/* The counter of the instruction at an address. */
static uint64_t *count_of(uint64_t at)
{
    size_t slot = (size_t)(at >> 1) % PLACES;
    while (places[slot].used && places[slot].address != at) {
        slot = (slot + 1) % PLACES;
    }
    if (!places[slot].used && ++places_used == PLACES) {
        fprintf(stderr, "insncount: more than %d instructions\n", PLACES - 1);
        exit(1);
    }
    places[slot].used = true;
    places[slot].address = at;
    return &places[slot].executed;
}

static void at_begin(unsigned int cpu, void *unused)
{
    (void)cpu;
    (void)unused;
    counting = true;
    fputs("begin\n", out);
    for (size_t slot = 0; places != NULL && slot < PLACES; slot++) {
        places[slot].executed = 0;
    }
    executed = 0;
    constants_read = 0;
}

static void at_access(unsigned int cpu, uint32_t what, uint64_t at, void *unused)
{
    (void)cpu;
    (void)unused;
    /* QEMU 7.2 reports stores where loads alone are asked for: both are asked for, and stores left out here. */
    if (at >= address[CONSTANTS] && at < address[CONSTANTS_END] && !qemu_plugin_mem_is_store(what)) {
        constants_read += UINT64_C(1) << qemu_plugin_mem_size_shift(what);
    }
}

static void at_end(unsigned int cpu, void *unused)
{
    (void)cpu;
    (void)unused;
    if (counting) {
        for (size_t slot = 0; places != NULL && slot < PLACES; slot++) {
            if (places[slot].executed != 0) {
                fprintf(out, "at %" PRIu64 " %" PRIu64 "\n", places[slot].address, places[slot].executed);
            }
        }
        if (address[CONSTANTS] != UINT64_MAX) {
            fprintf(out, "constants %" PRIu64 "\n", constants_read);
        }
        fprintf(out, "end %" PRIu64 "\n", executed);
        fflush(out);
    }
    counting = false;
}

static void at_hook(unsigned int cpu, void *unused)
{
    (void)cpu;
    (void)unused;
    if (counting) {
        fprintf(out, "cut %" PRIu64 "\n", executed);
    }
}

static void at_resume(unsigned int cpu, void *unused)
{
    (void)cpu;
    (void)unused;
    executed = 0;
}

static void (*const on_marker[MARKERS])(unsigned int, void *) = {at_begin, at_end, at_hook, at_resume};

static void on_translation(qemu_plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    const size_t length = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < length; i++) {
        struct qemu_plugin_insn *const instruction = qemu_plugin_tb_get_insn(block, i);
        const uint64_t at = qemu_plugin_insn_vaddr(instruction);
        int marker = 0;
        while (marker < MARKERS && at != address[marker]) {
            marker++;
        }
        if (marker < MARKERS) {
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_marker[marker], CB_NO_REGS, NULL);
        } else {
            qemu_plugin_register_vcpu_insn_exec_inline(instruction, INLINE_ADD_U64, &executed, 1);
            if (places != NULL) {
                qemu_plugin_register_vcpu_insn_exec_inline(instruction, INLINE_ADD_U64, count_of(at), 1);
            }
            if (address[CONSTANTS] != UINT64_MAX) {
                qemu_plugin_register_vcpu_mem_cb(instruction, at_access, CB_NO_REGS, MEM_RW, NULL);
            }
        }
    }
}

int qemu_plugin_install(qemu_plugin_id id, const void *info, int argc, char **argv)
{
    static const char *const names[ADDRESSES] = {"begin=", "end=", "hook=", "resume=", "constants=", "constants_end="};
    (void)info;
    for (int marker = 0; marker < ADDRESSES; marker++) {
        address[marker] = UINT64_MAX; /* no instruction is there */
    }
    for (int i = 0; i < argc; i++) {
        bool known = false;
        for (int marker = 0; marker < ADDRESSES; marker++) {
            const size_t length = strlen(names[marker]);
            if (strncmp(argv[i], names[marker], length) == 0) {
                address[marker] = strtoull(argv[i] + length, NULL, 0);
                known = true;
            }
        }
        if (strncmp(argv[i], "out=", 4) == 0) {
            out = fopen(argv[i] + 4, "w");
            known = true;
        }
        if (strcmp(argv[i], "places=1") == 0) {
            places = calloc(PLACES, sizeof *places);
            known = places != NULL;
        }
        if (!known) {
            fprintf(stderr, "insncount: unknown argument %s\n", argv[i]);
            return -1;
        }
    }
    if (out == NULL || address[BEGIN] == UINT64_MAX || address[END] == UINT64_MAX) {
        fprintf(stderr, "insncount: begin=, end= and a writable out= are needed\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
