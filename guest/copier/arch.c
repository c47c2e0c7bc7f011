/* What is written in the machine's own language: x86-64 and aarch64. Trust domain: guest. See sys.h, threads.c.
 *
 * Sources: clone(2) (the order of its arguments differs), the kernel's arch/x86/kernel/signal_64.c and
 * arch/arm64/kernel/signal.c for what rt_sigreturn expects in the stack pointer.
 */
#include "sys.h"

#if defined(__x86_64__)
__asm__(".text\n"
	".hidden cb_sys_thread\n"
	".globl cb_sys_thread\n"
	".type cb_sys_thread, @function\n"
	"cb_sys_thread:\n"
	"	sub $16, %rsi\n"
	"	mov %r9, (%rsi)\n"
	"	mov 8(%rsp), %rax\n"
	"	mov %rax, 8(%rsi)\n"
	"	mov %rcx, %r10\n"
	"	mov $56, %eax\n" /* clone */
	"	syscall\n"
	"	test %rax, %rax\n"
	"	jnz 1f\n"
	"	xor %ebp, %ebp\n"
	"	pop %rax\n"
	"	pop %rdi\n"
	"	call *%rax\n"
	"	ud2\n"
	"1:	ret\n"
	".size cb_sys_thread, .-cb_sys_thread\n"
	".hidden cb_sys_sigreturn\n"
	".globl cb_sys_sigreturn\n"
	".type cb_sys_sigreturn, @function\n"
	"cb_sys_sigreturn:\n"
	"	mov %rdi, %rsp\n"
	"restore:\n"
	"	mov $15, %eax\n" /* rt_sigreturn */
	"	syscall\n"
	"	ud2\n"
	".size cb_sys_sigreturn, .-cb_sys_sigreturn\n"
	".hidden cb_sys_restorer\n"
	".globl cb_sys_restorer\n"
	".type cb_sys_restorer, @function\n"
	"cb_sys_restorer:\n"
	"	lea restore(%rip), %rax\n"
	"	ret\n"
	".size cb_sys_restorer, .-cb_sys_restorer\n");

unsigned long cb_sys_thread_pointer(void)
{
	unsigned long tp;

	__asm__("mov %%fs:0, %0" : "=r"(tp)); /* the C library keeps it there, by the machine's ABI for TLS */
	return tp;
}
#else
__asm__(".text\n"
	".hidden cb_sys_thread\n"
	".globl cb_sys_thread\n"
	".type cb_sys_thread, %function\n"
	"cb_sys_thread:\n"
	"	stp x5, x6, [x1, #-16]!\n"
	"	mov x7, x3\n"
	"	mov x3, x4\n" /* here the thread pointer comes before the address of the id */
	"	mov x4, x7\n"
	"	mov x8, #220\n" /* clone */
	"	svc #0\n"
	"	cbnz x0, 1f\n"
	"	mov x29, #0\n"
	"	mov x30, #0\n"
	"	ldp x5, x0, [sp], #16\n"
	"	blr x5\n"
	"	brk #0\n"
	"1:	ret\n"
	".size cb_sys_thread, .-cb_sys_thread\n"
	".hidden cb_sys_sigreturn\n"
	".globl cb_sys_sigreturn\n"
	".type cb_sys_sigreturn, %function\n"
	"cb_sys_sigreturn:\n"
	"	mov sp, x0\n"
	"	mov x8, #139\n" /* rt_sigreturn */
	"	svc #0\n"
	"	brk #0\n"
	".size cb_sys_sigreturn, .-cb_sys_sigreturn\n");

void *cb_sys_restorer(void)
{
	return NULL;
}

unsigned long cb_sys_thread_pointer(void)
{
	unsigned long tp;

	__asm__("mrs %0, tpidr_el0" : "=r"(tp));
	return tp;
}
#endif

/* The compiler may call these. */
__attribute__((visibility("hidden"))) void *memset(void *to, int c, size_t n)
{
	unsigned char *p = to;

	for (size_t i = 0; i < n; i++) {
		p[i] = (unsigned char)c;
		__asm__ volatile("" ::: "memory"); /* else this loop is a call of memset */
	}
	return to;
}

__attribute__((visibility("hidden"))) void *memcpy(void *to, const void *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		((unsigned char *)to)[i] = ((const unsigned char *)from)[i];
		__asm__ volatile("" ::: "memory");
	}
	return to;
}
