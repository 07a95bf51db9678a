/* A whole program: a graph of kernels with its memory plan, made from one list of words and run by one call.
 *
 * A program runs on a table of pointers: its arguments, then its results.  Whatever else it needs lies in one workspace.
 * Control flow is a node like any other: its kernel runs the programs of its parts.
 */
#ifndef FG_PROGRAM_H
#define FG_PROGRAM_H
#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of nodes beside those of enum fg_kind.  POINTER stands for: slot, offset; a slot of -1 means NULL.
 *
 * LOOP    length, n_const, n_carry, n_xs, n_ys, scratch POINTER,
 *         n_const x POINTER,
 *         n_carry x (init POINTER, result POINTER, spare POINTER, n_bytes, in_place),
 *         (n_xs + n_ys) x (POINTER, step in bytes)
 *         The part takes constants, carries, xs and gives carries, ys.  A carry that the part updates in place lies in the
 *         result; any other alternates between the result and the spare memory.
 * WHILE   n_cond_const, n_const, n_carry, scratch POINTER, flag POINTER, constants of both parts, carries as above
 *         The first part takes its constants and the carries and gives a BOOL, the second is the body.
 * COND    n_in, n_out, scratch POINTER, index POINTER, n_in x POINTER, n_out x POINTER
 *         Runs the part that the int32 index names, clamped to those there are.
 * HOST    id, n_pointers, n_pointers x POINTER
 *         Calls the function given to fg_set_host with the pointers.
 */
enum fg_control { FG_LOOP = 100, FG_WHILE = 101, FG_COND = 102, FG_HOST = 103 };

typedef struct fg_program fg_program;

/* Words: n_in, n_out, workspace bytes,
 *        n_out x (n_bytes, number of the argument whose memory it gets or -1),
 *        n_events, n_events x (node, 0, number of a result, its bytes: it is not written before that node
 *                              or node, 1, offset, bytes: that part of the workspace is not used after that node)
 *        n_tensors, n_tensors x (dtype, n_elements, bound number or -1 (workspace) or -2 (fixed), offset in the workspace or address),
 *        n_nodes, n_nodes x (kind, n_operands, operands (tensors), out (a tensor), n_parts, parts (numbers), n_words, words)
 * The parts are borrowed and must outlive the program. */
fg_program *fg_program_new(const int64_t *words, int64_t n_words, fg_program *const *parts, int n_parts, char *err, int err_size);
void fg_program_free(fg_program *p);

/* Runs on bound[0 .. n_in): fills bound[n_in ..) with new memory from fg_alloc, or with the donated argument's. Returns 0;
 * -1 with a message; -2 when there is no memory, with the number of bytes in err. Not re-entrant. */
int fg_program_run(fg_program *p, void **bound, char *err, int err_size);
void fg_program_profile(fg_program *p, int64_t *ns); /* fg_graph_profile of its graph */
int fg_program_dump(const fg_program *p, char *buf, int size);

/* fg_alloc and fg_free with the address as a number; 0 when there is no memory. */
int64_t fg_take_address(int64_t n_bytes);
void fg_give_address(int64_t address);

/* What a HOST node calls; it returns 0, or anything else to end the run with "host". */
typedef int (*fg_host)(int64_t id, void *const *pointers);
void fg_set_host(fg_host f);

#ifdef __cplusplus
}
#endif
#endif
