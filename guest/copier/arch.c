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
	".size cb_sys_restorer, .-cb_sys_restorer\n"
	".hidden cb_sys_mark\n"
	".globl cb_sys_mark\n"
	".type cb_sys_mark, @function\n"
	"cb_sys_mark:\n"
	"	mov %rbx, (%rdi)\n"
	"	mov %rbp, 8(%rdi)\n"
	"	mov %r12, 16(%rdi)\n"
	"	mov %r13, 24(%rdi)\n"
	"	mov %r14, 32(%rdi)\n"
	"	mov %r15, 40(%rdi)\n"
	"	lea 8(%rsp), %rax\n" /* as it is behind the return */
	"	mov %rax, 48(%rdi)\n"
	"	mov (%rsp), %rax\n"
	"	mov %rax, 56(%rdi)\n"
	"	xor %eax, %eax\n"
	"	ret\n"
	".size cb_sys_mark, .-cb_sys_mark\n"
	".hidden cb_sys_return_to\n"
	".globl cb_sys_return_to\n"
	".type cb_sys_return_to, @function\n"
	"cb_sys_return_to:\n"
	"	mov (%rdi), %rbx\n"
	"	mov 8(%rdi), %rbp\n"
	"	mov 16(%rdi), %r12\n"
	"	mov 24(%rdi), %r13\n"
	"	mov 32(%rdi), %r14\n"
	"	mov 40(%rdi), %r15\n"
	"	mov 48(%rdi), %rsp\n"
	"	mov $1, %eax\n"
	"	jmp *56(%rdi)\n"
	".size cb_sys_return_to, .-cb_sys_return_to\n");

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
	".size cb_sys_sigreturn, .-cb_sys_sigreturn\n"
	".hidden cb_sys_mark\n"
	".globl cb_sys_mark\n"
	".type cb_sys_mark, %function\n"
	"cb_sys_mark:\n"
	"	stp x19, x20, [x0]\n"
	"	stp x21, x22, [x0, #16]\n"
	"	stp x23, x24, [x0, #32]\n"
	"	stp x25, x26, [x0, #48]\n"
	"	stp x27, x28, [x0, #64]\n"
	"	stp x29, x30, [x0, #80]\n"
	"	stp d8, d9, [x0, #96]\n"
	"	stp d10, d11, [x0, #112]\n"
	"	stp d12, d13, [x0, #128]\n"
	"	stp d14, d15, [x0, #144]\n"
	"	mov x1, sp\n"
	"	str x1, [x0, #160]\n"
	"	mov w0, #0\n"
	"	ret\n"
	".size cb_sys_mark, .-cb_sys_mark\n"
	".hidden cb_sys_return_to\n"
	".globl cb_sys_return_to\n"
	".type cb_sys_return_to, %function\n"
	"cb_sys_return_to:\n"
	"	ldp x19, x20, [x0]\n"
	"	ldp x21, x22, [x0, #16]\n"
	"	ldp x23, x24, [x0, #32]\n"
	"	ldp x25, x26, [x0, #48]\n"
	"	ldp x27, x28, [x0, #64]\n"
	"	ldp x29, x30, [x0, #80]\n"
	"	ldp d8, d9, [x0, #96]\n"
	"	ldp d10, d11, [x0, #112]\n"
	"	ldp d12, d13, [x0, #128]\n"
	"	ldp d14, d15, [x0, #144]\n"
	"	ldr x1, [x0, #160]\n"
	"	mov sp, x1\n"
	"	mov w0, #1\n"
	"	ret\n"
	".size cb_sys_return_to, .-cb_sys_return_to\n");

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
