/* Errors: filling struct cb_err and naming codes.
 *
 * Trust domain: all C programs. Called wherever a person will read what went wrong.
 * Invariant: text is always terminated and never larger than its field; what does not fit is cut at a whole UTF-8
 * character; no control character is in it, whatever names it quotes.
 */
#include <cellblock/error.h>
#include <cellblock/json_write.h>
#include <cellblock/visible.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void put(char *field, size_t size, const char *text)
{
	(void)cb_visible(text, strlen(text), field, size);
}

int cb_err_set(struct cb_err *err, int code, const char *step, const char *cure, const char *format, ...)
{
	struct cb_err filled = { .code = code };
	va_list args;
	char text[sizeof(filled.text)];
	int n;

	if (err == NULL)
		return code;
	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (n < 0)
		text[0] = '\0';
	else if ((size_t)n >= sizeof(text))
		text[cb_utf8_complete_prefix(text, sizeof(text) - 1)] = '\0';
	/* it may quote names that hostile code chose, and it ends in terminals */
	(void)cb_visible(text, strlen(text), filled.text, sizeof(filled.text));
	put(filled.step, sizeof(filled.step), step != NULL ? step : "");
	put(filled.cure, sizeof(filled.cure), cure != NULL ? cure : "");
	*err = filled; /* last: step, cure and arguments may point into *err */
	return code;
}

/* strerrorname_np is newer than the oldest glibc that the wheels run with. */
#define NAME(code) [code] = #code
static const char *const errno_names[] = {
	NAME(EPERM), NAME(ENOENT), NAME(ESRCH), NAME(EINTR), NAME(EIO), NAME(ENXIO), NAME(E2BIG), NAME(ENOEXEC),
	NAME(EBADF), NAME(ECHILD), NAME(EAGAIN), NAME(ENOMEM), NAME(EACCES), NAME(EFAULT), NAME(ENOTBLK), NAME(EBUSY),
	NAME(EEXIST), NAME(EXDEV), NAME(ENODEV), NAME(ENOTDIR), NAME(EISDIR), NAME(EINVAL), NAME(ENFILE),
	NAME(EMFILE), NAME(ENOTTY), NAME(ETXTBSY), NAME(EFBIG), NAME(ENOSPC), NAME(ESPIPE), NAME(EROFS), NAME(EMLINK),
	NAME(EPIPE), NAME(EDOM), NAME(ERANGE), NAME(EDEADLK), NAME(ENAMETOOLONG), NAME(ENOLCK), NAME(ENOSYS),
	NAME(ENOTEMPTY), NAME(ELOOP), NAME(ENOMSG), NAME(EIDRM), NAME(ECHRNG), NAME(EL2NSYNC), NAME(EL3HLT),
	NAME(EL3RST), NAME(ELNRNG), NAME(EUNATCH), NAME(ENOCSI), NAME(EL2HLT), NAME(EBADE), NAME(EBADR), NAME(EXFULL),
	NAME(ENOANO), NAME(EBADRQC), NAME(EBADSLT), NAME(EBFONT), NAME(ENOSTR), NAME(ENODATA), NAME(ETIME),
	NAME(ENOSR), NAME(ENONET), NAME(ENOPKG), NAME(EREMOTE), NAME(ENOLINK), NAME(EADV), NAME(ESRMNT), NAME(ECOMM),
	NAME(EPROTO), NAME(EMULTIHOP), NAME(EDOTDOT), NAME(EBADMSG), NAME(EOVERFLOW), NAME(ENOTUNIQ), NAME(EBADFD),
	NAME(EREMCHG), NAME(ELIBACC), NAME(ELIBBAD), NAME(ELIBSCN), NAME(ELIBMAX), NAME(ELIBEXEC), NAME(EILSEQ),
	NAME(ERESTART), NAME(ESTRPIPE), NAME(EUSERS), NAME(ENOTSOCK), NAME(EDESTADDRREQ), NAME(EMSGSIZE),
	NAME(EPROTOTYPE), NAME(ENOPROTOOPT), NAME(EPROTONOSUPPORT), NAME(ESOCKTNOSUPPORT), NAME(EOPNOTSUPP),
	NAME(EPFNOSUPPORT), NAME(EAFNOSUPPORT), NAME(EADDRINUSE), NAME(EADDRNOTAVAIL), NAME(ENETDOWN),
	NAME(ENETUNREACH), NAME(ENETRESET), NAME(ECONNABORTED), NAME(ECONNRESET), NAME(ENOBUFS), NAME(EISCONN),
	NAME(ENOTCONN), NAME(ESHUTDOWN), NAME(ETOOMANYREFS), NAME(ETIMEDOUT), NAME(ECONNREFUSED), NAME(EHOSTDOWN),
	NAME(EHOSTUNREACH), NAME(EALREADY), NAME(EINPROGRESS), NAME(ESTALE), NAME(EUCLEAN), NAME(ENOTNAM),
	NAME(ENAVAIL), NAME(EISNAM), NAME(EREMOTEIO), NAME(EDQUOT), NAME(ENOMEDIUM), NAME(EMEDIUMTYPE),
	NAME(ECANCELED), NAME(ENOKEY), NAME(EKEYEXPIRED), NAME(EKEYREVOKED), NAME(EKEYREJECTED), NAME(EOWNERDEAD),
	NAME(ENOTRECOVERABLE),
	NAME(ERFKILL), NAME(EHWPOISON),
};

#define OWN(code) [CB_E_SYNTAX - (code)] = #code
static const char *const own_names[] = { OWN(CB_E_SYNTAX),  OWN(CB_E_TOO_BIG), OWN(CB_E_DENIED), OWN(CB_E_NOT_BUILT),
					 OWN(CB_E_UNKNOWN), OWN(CB_E_AUTH),    OWN(CB_E_CLOSED), OWN(CB_E_USAGE) };

const char *cb_err_name(int code)
{
	const char *name = NULL;

	if (code == 0)
		return "OK";
	if (code < 0 && code > -(int)CB_COUNT(errno_names))
		name = errno_names[-code];
	else if (code <= CB_E_SYNTAX && code > CB_E_SYNTAX - (int)CB_COUNT(own_names))
		name = own_names[CB_E_SYNTAX - code];
	return name != NULL ? name : "unknown error";
}

const char *cb_err_text(int code)
{
	return code < 0 && code > CB_E_SYNTAX ? strerror(-code) : cb_err_name(code);
}
