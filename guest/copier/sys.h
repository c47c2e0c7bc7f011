/* System calls, without a C library. Trust domain: guest, hostile like all of it.
 *
 * While other threads stand still one of them may hold any lock of the C library's, and a frozen copy has no other
 * threads at all: nothing here may call it. Each returns what the kernel does, a negative errno for an error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
static inline long cb_sys(long n, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
}
#elif defined(__aarch64__)
static inline long cb_sys(long n, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
	return x0;
}
#else
#error "x86-64 and aarch64"
#endif

#define cb_sys0(n) cb_sys(n, 0, 0, 0, 0, 0, 0)
#define cb_sys1(n, a) cb_sys(n, (long)(a), 0, 0, 0, 0, 0)
#define cb_sys2(n, a, b) cb_sys(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define cb_sys3(n, a, b, c) cb_sys(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define cb_sys4(n, a, b, c, d) cb_sys(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define cb_sys5(n, a, b, c, d, e) cb_sys(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

static inline _Noreturn void cb_sys_leave(int status)
{
	for (;;)
		(void)cb_sys1(SYS_exit_group, status);
}

/* Calls each(context, n) for the numbers that are names in a folder of /proc, its own fd among them, until it gives a
 * negative number: that one, or a negative errno; else 0. */
int cb_sys_numbers_in(const char *folder, int (*each)(void *context, int n), void *context);
/* Calls each(context, line) for the lines of a file of /proc, without their ends, as cb_sys_numbers_in does. What is
 * longer than a page is cut. */
int cb_sys_lines_of(const char *path, int (*each)(void *context, const char *line), void *context);
int64_t cb_sys_now_ns(void); /* monotonic */
/* FOLDER n TAIL, written into path[64]. */
const char *cb_sys_path(char *path, const char *folder, int n, const char *tail);
/* The number that text begins with; what follows it. */
const char *cb_sys_number(const char *text, unsigned base, uint64_t *ret);
/* The number after the next `name` of a text, and blanks; what follows it, NULL if there is none. */
const char *cb_sys_number_after(const char *text, const char *name, unsigned base, uint64_t *ret);
bool cb_sys_begins(const char *text, const char *with);
/* A thread of this process that begins with function(argument) on `stack`; its id, or a negative errno. */
long cb_sys_thread(unsigned long flags, void *stack, int *parent_tid, int *child_tid, unsigned long tls,
		   void (*function)(void *), void *argument);
/* Back from a signal's handler: `frame` is what the kernel put on the stack for it. */
_Noreturn void cb_sys_sigreturn(void *frame);
/* What a handler returns to; NULL where the kernel has its own. */
void *cb_sys_restorer(void);
unsigned long cb_sys_thread_pointer(void);
/* As setjmp and longjmp: notes the place, 0; who returns to it, perhaps from another stack, has a 1 there. The function
 * that noted it must not have returned. */
#define CB_SYS_MARK_WORDS 21
__attribute__((returns_twice)) long cb_sys_mark(uint64_t place[CB_SYS_MARK_WORDS]);
_Noreturn void cb_sys_return_to(const uint64_t place[CB_SYS_MARK_WORDS]);
