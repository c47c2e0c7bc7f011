/* Asking the interpreter in a throw-away jail.
 *
 * Role: its exact version, whether IPython and debugpy are there, which entries of its search path the jail does not
 * have. Trust domain: supervisor, at start; the answer is a guest's word, since a venv's own site code ran: bounded,
 * strictly parsed, and never more than text for people but for the version, which has a form. Invariant: the jail has
 * no network, an empty workspace, and nothing of the host but system and interpreter.
 */
#include "interpreter_ask.h"

#include <errno.h>
#include <jansson.h>
#include <unistd.h>

#include "interpreter_jail.h"
#include "policy/paths.h"

#define STEP "interpreter"
#define MAX_ANSWER (256u << 10)
#define MAX_MISSING 100

static const char script[] =
	"import glob, json, os, sys\n"
	"from importlib import metadata, util\n"
	"from urllib.parse import unquote, urlsplit\n"
	"wanted = [p for p in sys.path if p and not p.endswith('.zip')]\n"
	"for folder in list(wanted):\n"
	"    for name in glob.glob(os.path.join(glob.escape(folder), '*.pth')):\n"
	"        try:\n"
	"            lines = open(name, errors='replace').read(1 << 20).splitlines()\n"
	"        except OSError:\n"
	"            continue\n"
	"        wanted += [os.path.join(folder, l.rstrip()) for l in lines\n"
	"                   if l.strip() and not l.startswith(('#', 'import ', 'import\\t'))]\n"
	"    for name in glob.glob(os.path.join(glob.escape(folder), '*.dist-info', 'direct_url.json')):\n"
	"        try:\n"
	"            about = json.load(open(name))\n"
	"            if about.get('dir_info', {}).get('editable') and about['url'].startswith('file:'):\n"
	"                wanted.append(unquote(urlsplit(about['url']).path))\n"
	"        except Exception:\n"
	"            continue\n"
	"missing = sorted({os.path.normpath(p) for p in wanted if not os.path.exists(p)})\n"
	"ipython = None\n"
	"try:\n"
	"    if util.find_spec('IPython') is not None:\n"
	"        ipython = metadata.version('ipython')\n"
	"except Exception:\n"
	"    pass\n"
	"try:\n"
	"    debugpy = util.find_spec('debugpy') is not None\n"
	"except Exception:\n"
	"    debugpy = False\n"
	"version = '%d.%d.%d' % sys.version_info[:3]\n"
	"bash = os.popen('exec bash -c \"echo \\${BASH_VERSION%%[^0-9.]*}\" 2>/dev/null').read().strip() or None\n"
	"answer = {'version': version, 'ipython': ipython, 'debugpy': debugpy, 'bash': bash}\n"
	"answer['missing'] = missing[:100]\n"
	"print('\\n' + json.dumps(answer), flush=True)\n";

static bool is_version(const char *text, bool exact)
{
	size_t n = strspn(text, exact ? "0123456789." : "0123456789abcdefghijklmnopqrstuvwxyz.+-");
	unsigned minor, micro;
	int end = 0;

	if (text[n] != '\0' || n == 0 || n >= 40)
		return false;
	return !exact || (sscanf(text, "3.%u.%u%n", &minor, &micro, &end) == 2 && (size_t)end == n);
}

/* Entries that the host does not have either are nobody's loss. */
static int add_missing(struct cb_strv *list, const char *path)
{
	if (cb_strv_has(list, path) || list->count >= MAX_MISSING || access(path, F_OK) < 0)
		return 0;
	return cb_strv_add(list, path);
}

static int take_missing(const json_t *items, struct cb_strv *ret)
{
	const json_t *item;
	size_t i;
	int r = 0;

	if (!json_is_array(items) || json_array_size(items) > MAX_MISSING)
		return CB_E_SYNTAX;
	json_array_foreach(items, i, item)
	{
		const char *text = json_string_value(item);

		r = text == NULL || text[0] != '/' || strlen(text) > 4096 ? CB_E_SYNTAX : add_missing(ret, text);
		if (r < 0)
			return r;
	}
	return 0;
}

int cb_interpreter_take_answer(struct cb_interpreter *interpreter, const char *text, size_t len, struct cb_err *err)
{
	json_auto_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	const char *version = json_string_value(json_object_get(root, "version"));
	const json_t *others[] = { json_object_get(root, "ipython"), json_object_get(root, "bash") };
	const json_t *debugpy = json_object_get(root, "debugpy");
	bool has_debugpy = json_is_true(debugpy);
	struct cb_strv missing = { 0 };
	char *copies[3] = { NULL, NULL, NULL };
	int r = take_missing(json_object_get(root, "missing"), &missing);

	if (version == NULL || !is_version(version, true) || (debugpy != NULL && !json_is_boolean(debugpy)))
		r = CB_E_SYNTAX;
	for (size_t i = 0; i < 2 && r == 0; i++) {
		const char *word = json_string_value(others[i]);

		if (word != NULL ? !is_version(word, false) : !json_is_null(others[i]) && (i == 0 || others[i] != NULL))
			r = CB_E_SYNTAX;
		else if (word != NULL && (copies[i + 1] = strdup(word)) == NULL)
			r = -ENOMEM;
	}
	if (r == 0 && (copies[0] = strdup(version)) == NULL)
		r = -ENOMEM;
	if (r < 0) {
		for (size_t i = 0; i < 3; i++)
			free(copies[i]);
		cb_strv_release(&missing);
		return cb_err_set(err, r, STEP, NULL, "%s gave an answer about itself that makes no sense",
				  interpreter->executable);
	}
	free(interpreter->version);
	free(interpreter->ipython_version);
	free(interpreter->bash_version);
	cb_strv_release(&interpreter->missing);
	interpreter->version = copies[0];
	interpreter->ipython_version = copies[1];
	interpreter->bash_version = copies[2];
	interpreter->debugpy = has_debugpy;
	interpreter->missing = missing;
	return 0;
}

/* What site would add on the host from the user's home and environment, none of which gets in. */
static int add_users_own(struct cb_interpreter *interpreter)
{
	CB_AUTO_PATH home = cb_path_home();
	const char *dot = strrchr(interpreter->version, '.'), *path = getenv("PYTHONPATH");
	CB_AUTO_PATH user_site = NULL;
	CB_AUTO_PATH one = NULL;
	int r = 0;

	if (home != NULL && interpreter->venv == NULL && dot != NULL) {
		user_site = cb_path_format("%s/.local/lib/python%.*s/site-packages", home,
					   (int)(dot - interpreter->version), interpreter->version);
		r = user_site != NULL ? add_missing(&interpreter->missing, user_site) : -ENOMEM;
	}
	while (r == 0 && cb_path_next(&path, &one))
		r = one == NULL ? -ENOMEM : one[0] == '/' ? add_missing(&interpreter->missing, one) : 0;
	return r;
}

int cb_interpreter_ask(struct cb_interpreter *interpreter, const char *jail_program, struct cb_err *err)
{
	CB_AUTO_BUF answer = CB_BUF_INIT(MAX_ANSWER);
	int r = cb_interpreter_run(interpreter, jail_program, script, NULL, CB_INTERPRETER_SECONDS, &answer, err);

	if (r == 0)
		r = cb_interpreter_take_answer(interpreter, (const char *)answer.data, answer.len, err);
	if (r == 0 && add_users_own(interpreter) < 0)
		r = cb_err_set(err, -ENOMEM, STEP, NULL, "out of memory");
	return r;
}
