/* The throw-away jail for questions to the interpreter.
 *
 * Trust domain: supervisor, at start, while it may still exec. A venv's own site code runs there, so the answer is a
 * guest's word: bounded here, parsed strictly by the caller. Invariant: the jail has no network, an empty workspace,
 * and nothing of the host but system, interpreter and, if asked for, our own guest package.
 */
#include "interpreter_jail.h"

#include <cellblock/fd.h>
#include <errno.h>
#include <sys/wait.h>

#include "capture.h"
#include "jail_env.h"
#include "jail_spec.h"

#define STEP "interpreter"
#define MARK "\ncellblock run: " /* begins what the launcher says itself */

static int make_spec(const struct cb_interpreter *interpreter, const char *script, const char *guest_dir,
		     struct cb_jail_spec *spec)
{
	const char *const arguments[] = { "-I", "-B", "-c", script };
	int r = cb_strv_add(&spec->argv, interpreter->executable);

	for (size_t i = 0; i < 4 && r == 0; i++)
		r = cb_strv_add(&spec->argv, arguments[i]);
	if (r == 0)
		r = cb_jail_env(NULL, interpreter, NULL, &spec->env);
	if (r == 0)
		r = cb_jail_spec_interpreter(interpreter, spec);
	if (r == 0 && guest_dir != NULL)
		r = cb_spec_add_bind(spec, guest_dir, CB_GUEST_TARGET, CB_BIND_RO, false, "Cellblock's guest");
	spec->cwd = strdup("/workspace");
	spec->hostname = strdup("cellblock");
	spec->workspace_target = strdup("/workspace");
	spec->workspace_mode = CB_WORKSPACE_TMPFS;
	spec->network = CB_NETWORK_NONE;
	spec->minimum = interpreter->minimum;
	spec->limit_data = 1ull << 30;
	spec->limit_pids = 64;
	spec->limit_open_files = 256;
	spec->limit_file_size = 8ull << 20;
	spec->limit_tmp = spec->limit_shm = 16ull << 20;
	spec->limit_inodes = 4096;
	return r < 0 || spec->cwd == NULL || spec->hostname == NULL || spec->workspace_target == NULL ? -ENOMEM : 0;
}

/* Where the launcher gave no jail its words are a line with the cause and one with the cure. Of a jail that it gave the
 * first may be a note, which is none; a cause is that it killed it. */
static char *launchers_cause(char *text, int status)
{
	static const char not_started[] = " can't be started: ";
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
	char *first = strstr(text, MARK);

	if (first == NULL || code == 125)
		return first;
	if ((code == 126 || code == 127) &&
	    memmem(first + 1, strcspn(first + 1, "\n"), not_started, strlen(not_started)) != NULL)
		return first;
	return strstr(first, MARK "killed");
}

/* Of the interpreter's words the last line says why. `errors` begins with a newline. */
static int not_run(const struct cb_interpreter *interpreter, int status, struct cb_buf *errors, struct cb_err *err)
{
	const char *why = "it wrote nothing";
	char *cause = NULL, *cure = NULL, how[64];

	while (errors->len > 0 && errors->data[errors->len - 1] == '\n')
		errors->len--;
	if (errors->len > 0 && cb_buf_append(errors, "", 1) == 0) {
		cause = launchers_cause((char *)errors->data, status);
		cure = cause != NULL ? strstr(cause + 1, MARK) : NULL;
		why = strrchr((char *)errors->data, '\n') + 1;
	}
	if (cause != NULL) {
		cause += strlen(MARK);
		cause[strcspn(cause, "\n")] = '\0';
		return cb_err_set(err, WEXITSTATUS(status) == 125 ? CB_E_DENIED : -EIO, STEP,
				  cure != NULL ? cure + strlen(MARK) : "See what `cellblock doctor` says.",
				  "%s could not be asked in a jail: %s", interpreter->executable, cause);
	}
	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how), "signal %d", WTERMSIG(status));
	else
		snprintf(how, sizeof(how), "status %d", WEXITSTATUS(status));
	return cb_err_set(err, WIFEXITED(status) && WEXITSTATUS(status) == 125 ? CB_E_DENIED : -EIO, STEP,
			  "Run `cellblock doctor`, and the interpreter by hand.",
			  "%s could not be asked in a jail (%s): %s", interpreter->executable, how, why);
}

static int keep_last_line(struct cb_buf *out)
{
	while (out->len > 0 && out->data[out->len - 1] == '\n')
		out->len--;
	const uint8_t *line = out->len > 0 ? memrchr(out->data, '\n', out->len) : NULL;

	if (line != NULL)
		cb_buf_consume(out, (size_t)(line - out->data) + 1);
	return out->len > 0 ? 0 : -EIO;
}

static int run(const struct cb_interpreter *interpreter, const char *jail_program, int spec_fd, int seconds,
	       struct cb_buf *out, struct cb_err *err)
{
	char program[4096], fd_text[12];
	char *argv[] = { program, (char[]){ "run" }, (char[]){ "--spec-fd" }, fd_text, NULL };
	CB_AUTO_BUF errors = CB_BUF_INIT(16384);
	char late[40];
	int status = 0, r;

	snprintf(late, sizeof(late), "no answer within %d seconds", seconds);
	snprintf(program, sizeof(program), "%s", jail_program);
	snprintf(fd_text, sizeof(fd_text), "%d", CB_CAPTURE_FD);
	r = cb_buf_append(&errors, "\n", 1);
	if (r == 0)
		r = cb_capture(argv, spec_fd, seconds * 1000, out, &errors, &status);
	if (r < 0)
		return cb_err_set(err, r, STEP, NULL, "%s could not be asked in a jail: %s", interpreter->executable,
				  r == -ETIMEDOUT ? late : cb_err_text(r));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || keep_last_line(out) < 0)
		return not_run(interpreter, status, &errors, err);
	return 0;
}

int cb_interpreter_run(const struct cb_interpreter *interpreter, const char *jail_program, const char *script,
		       const char *guest_dir, int seconds, struct cb_buf *out, struct cb_err *err)
{
	struct cb_jail_spec spec = { 0 };
	CB_AUTO_FD fd = -1;
	int r = make_spec(interpreter, script, guest_dir, &spec);

	if (r == 0)
		r = cb_jail_spec_to_fd(&spec, &fd);
	cb_jail_spec_release(&spec);
	if (r < 0)
		return cb_err_set(err, r, STEP, NULL, "the jail to ask %s in can't be described: %s",
				  interpreter->executable, cb_err_text(r));
	return run(interpreter, jail_program, fd, seconds, out, err);
}
