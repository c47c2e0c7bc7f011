/* Compiles the table of system calls into a filter program for the kernel.
 *
 * Trust domain: broker, once. The program: a foreign architecture kills; then a binary search over spans of call
 * numbers; a span ends in a verdict or in the rules of one call, in their order. Not by libseccomp, measured with 2.5.4
 * on this table: 5 to 8 ms against 0.1, it cannot say "otherwise", and versions before 2.6.1 merge rules wrongly.
 * tests/unit/sandbox/walls/test_seccomp.c runs the program in an interpreter against the table.
 */
#include "seccomp.h"
#include "seccomp_rules.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#define X32_BIT 0x40000000u
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no filter for this machine yet"
#endif

#define MAX_RULES 1024u
#define VERDICT(error)                                                                                                 \
	((error) == 0 ? SECCOMP_RET_ALLOW :                                                                            \
			(uint32_t)SECCOMP_RET_ERRNO | ((error) == CB_SECCOMP_NOTHING ? 0u : (uint32_t)(error)))
#define DATA_NR ((uint32_t)offsetof(struct seccomp_data, nr))
#define DATA_ARCH ((uint32_t)offsetof(struct seccomp_data, arch))
/* Both machines are little-endian: the low half comes first. */
#define DATA_ARG(n) ((uint32_t)(offsetof(struct seccomp_data, args) + 8u * (n)))

/* Call numbers from `first` up to the next span's. `rules` is NULL for a plain verdict. */
struct span {
	uint32_t first;
	uint16_t error;
	const struct cb_seccomp_rule **rules;
	size_t nrules;
};

struct program {
	struct sock_filter insns[BPF_MAXINSNS];
	size_t len;
	bool full;
	const struct cb_seccomp_rule *rules[MAX_RULES];
	struct span spans[2 * MAX_RULES];
	size_t nspans;
};

static void put(struct program *p, uint16_t code, uint32_t k, size_t jt, size_t jf)
{
	if (p->len == BPF_MAXINSNS || jt > UINT8_MAX || jf > UINT8_MAX) {
		p->full = true;
		return;
	}
	p->insns[p->len++] = (struct sock_filter)BPF_JUMP(code, k, (uint8_t)jt, (uint8_t)jf);
}

static void put_return(struct program *p, uint32_t value)
{
	put(p, BPF_RET | BPF_K, value, 0, 0);
}

/* Number and place give one order: rules of a call stay as they stand in the table. */
static int by_number(const void *a, const void *b)
{
	const struct cb_seccomp_rule *x = *(const struct cb_seccomp_rule *const *)a;
	const struct cb_seccomp_rule *y = *(const struct cb_seccomp_rule *const *)b;

	if (x->nr != y->nr)
		return x->nr < y->nr ? -1 : 1;
	return x < y ? -1 : x > y;
}

static void add_span(struct program *p, const struct span *span)
{
	const struct span *last = p->nspans > 0 ? &p->spans[p->nspans - 1] : NULL;

	if (last != NULL && last->rules == NULL && span->rules == NULL && last->error == span->error)
		return;
	p->spans[p->nspans++] = *span;
}

static void make_spans(struct program *p, size_t nrules)
{
	uint32_t next = 0;

	for (size_t i = 0, n; i < nrules; i += n) {
		const struct cb_seccomp_rule *first = p->rules[i];
		struct span span = { .first = (uint32_t)first->nr, .error = first->error };

		for (n = 1; i + n < nrules && p->rules[i + n]->nr == first->nr; n++)
			;
		if (first->nchecks > 0) {
			span.rules = &p->rules[i];
			span.nrules = n;
		}
		if (span.first > next)
			add_span(p, &(struct span){ .first = next, .error = ENOSYS });
		add_span(p, &span);
		next = span.first + 1;
	}
	add_span(p, &(struct span){ .first = next, .error = ENOSYS });
}

static size_t rule_length(const struct cb_seccomp_rule *rule)
{
	size_t n = 1;

	for (unsigned i = 0; i < rule->nchecks; i++)
		n += rule->checks[i].mask == UINT32_MAX ? 2 : 3;
	return n;
}

static void put_rules(struct program *p, const struct span *span)
{
	for (size_t i = 0; i < span->nrules; i++) {
		const struct cb_seccomp_rule *rule = span->rules[i];
		size_t end = p->len + rule_length(rule);

		for (unsigned c = 0; c < rule->nchecks; c++) {
			const struct cb_seccomp_check *check = &rule->checks[c];

			put(p, BPF_LD | BPF_W | BPF_ABS, DATA_ARG(check->arg) + (check->high ? 4 : 0), 0, 0);
			if (check->mask != UINT32_MAX)
				put(p, BPF_ALU | BPF_AND | BPF_K, check->mask, 0, 0);
			put(p, BPF_JMP | BPF_JEQ | BPF_K, check->value, 0, end - p->len - 1);
		}
		put_return(p, VERDICT(rule->error));
		if (rule->nchecks == 0)
			return;
	}
	put_return(p, VERDICT(ENOSYS));
}

/* spans[lo..hi): the number is in the accumulator until a call's rules load their arguments. */
static void put_search(struct program *p, size_t lo, size_t hi)
{
	size_t mid = lo + (hi - lo) / 2, at = p->len, left;

	if (hi - lo == 1) {
		if (p->spans[lo].rules != NULL)
			put_rules(p, &p->spans[lo]);
		else
			put_return(p, VERDICT(p->spans[lo].error));
		return;
	}
	/* Jumps reach 255 instructions; the far half may be farther, so it is led to by a long jump behind the test. */
	put(p, BPF_JMP | BPF_JGE | BPF_K, p->spans[mid].first, 0, 1);
	put(p, BPF_JMP | BPF_JA, 0, 0, 0);
	put_search(p, lo, mid);
	left = p->len - at - 2;
	if (!p->full)
		p->insns[at + 1].k = (uint32_t)left;
	put_search(p, mid, hi);
}

static void put_program(struct program *p)
{
	put(p, BPF_LD | BPF_W | BPF_ABS, DATA_ARCH, 0, 0);
	put(p, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
	put_return(p, SECCOMP_RET_KILL_PROCESS);
	put(p, BPF_LD | BPF_W | BPF_ABS, DATA_NR, 0, 0);
#ifdef X32_BIT
	/* -1 is what a tracer leaves of a call that it cancels, not a call of x32. */
	put(p, BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 2, 0);
	put(p, BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
	put_return(p, SECCOMP_RET_KILL_PROCESS);
#endif
	put_search(p, 0, p->nspans);
}

/* What whoever is to put itself behind a jail's walls calls for that, beside what the table allows. */
static const struct cb_seccomp_rule outer[] = {
	{ .kind = CB_SECCOMP_ALLOW, .name = "setns", .nr = SYS_setns },
	{ .kind = CB_SECCOMP_ALLOW, .name = "setresuid", .nr = SYS_setresuid },
	{ .kind = CB_SECCOMP_ALLOW, .name = "setresgid", .nr = SYS_setresgid },
	{ .kind = CB_SECCOMP_ALLOW, .name = "capset", .nr = SYS_capset },
	{ .kind = CB_SECCOMP_ALLOW, .name = "keyctl", .nr = SYS_keyctl },
	{ .kind = CB_SECCOMP_ALLOW, .name = "prctl", .nr = SYS_prctl },
	{ .kind = CB_SECCOMP_ALLOW, .name = "seccomp", .nr = SYS_seccomp },
	{ .kind = CB_SECCOMP_ALLOW, .name = "landlock_restrict_self", .nr = 446 },
	{ .kind = CB_SECCOMP_ALLOW, .name = "prlimit64", .nr = SYS_prlimit64 }, /* pid 1's alone */
};
#define OUTER CB_COUNT(outer)

static bool is_outer(int nr, size_t nouter)
{
	for (size_t i = 0; i < nouter; i++)
		if (outer[i].nr == nr)
			return true;
	return false;
}

/* The table's, but for the first `nouter` of the others. */
static size_t take_rules(struct program *p, size_t nouter)
{
	const struct cb_seccomp_rule *end = cb_seccomp_rules + cb_seccomp_rules_count;
	size_t n = 0;

	for (const struct cb_seccomp_rule *rule = cb_seccomp_rules; rule < end; rule++)
		if (rule->nr >= 0 && n < MAX_RULES && !is_outer(rule->nr, nouter))
			p->rules[n++] = rule;
	for (size_t i = 0; i < nouter && n < MAX_RULES; i++)
		p->rules[n++] = &outer[i];
	return n;
}

static int compile(size_t nouter, struct sock_fprog *ret_filter, struct cb_err *err)
{
	struct program *p = calloc(1, sizeof(*p));
	struct sock_filter *insns;
	size_t n;

	if (p == NULL)
		return cb_err_set(err, -ENOMEM, "seccomp", NULL, "the filter cannot be compiled: out of memory");
	n = take_rules(p, nouter);
	qsort(p->rules, n, sizeof(*p->rules), by_number);
	make_spans(p, n);
	put_program(p);
	insns = p->full || n == MAX_RULES ? NULL : malloc(p->len * sizeof(*insns));
	if (insns == NULL) {
		free(p);
		return cb_err_set(err, CB_E_TOO_BIG, "seccomp", NULL, "the filter's table is too long");
	}
	memcpy(insns, p->insns, p->len * sizeof(*insns));
	*ret_filter = (struct sock_fprog){ .len = (unsigned short)p->len, .filter = insns };
	free(p);
	return 0;
}

int cb_seccomp_compile(struct sock_fprog *ret_filter, struct cb_err *err)
{
	return compile(0, ret_filter, err);
}

int cb_seccomp_compile_outer(bool for_pid1, struct sock_fprog *ret_filter, struct cb_err *err)
{
	return compile(for_pid1 ? OUTER : OUTER - 1, ret_filter, err);
}
