/* What is made ready for an interpreter once, at installation or at a first start: the guest package and what it
 * imports compiled, matplotlib's list of fonts, what jedi reads for a first completion.
 *
 * Trust domain: supervisor's program, at installation. The jail's answer is data: names are checked, contents are
 * written as they are and interpreted by nobody outside a jail. The folder is shown as the package's __pycache__, an
 * empty folder of the installed package.
 */
#include "guest_cache.h"

#include <errno.h>
#include <jansson.h>
#include <openssl/evp.h>

#include "files.h"
#include "interpreter_jail.h"
#include "jail_spec.h"
#include "policy/paths.h"

#define STEP "guest modules"
#define MAX_ANSWER (32u << 20)
#define LIBRARY_SECONDS 180 /* its computing has a limit of its own, which takes as long on a busy machine */

static const char script[] =
	"import base64, importlib.util, json, os, sys\n"
	"from importlib._bootstrap_external import SourceFileLoader, SourceLoader, _code_to_timestamp_pyc\n"
	"folder = '" CB_GUEST_TARGET "/cellblock_guest'\n"
	"compiled, compile_it = {}, SourceLoader.source_to_code\n"
	/* the bundle imports our modules and asks for their code again; Python 3.15 says a module's name, too */
	"def once(self, data, path, *more, **how):\n"
	"    if path not in compiled:\n"
	"        compiled[path] = compile_it(self, data, path, *more, **how)\n"
	"    return compiled[path]\n"
	"SourceLoader.source_to_code = once\n"
	"files = {}\n"
	"for name in sorted(os.listdir(folder)):\n"
	"    if not name.endswith('.py'):\n"
	"        continue\n"
	"    path = os.path.join(folder, name)\n"
	"    with open(path, 'rb') as f:\n"
	"        code = SourceFileLoader(name, path).source_to_code(f.read(), path)\n"
	"    about = os.stat(path)\n"
	"    pyc = _code_to_timestamp_pyc(code, int(about.st_mtime), about.st_size)\n"
	"    files[os.path.basename(importlib.util.cache_from_source(path))] = base64.b64encode(pyc).decode()\n"
	"sys.path.insert(0, '" CB_GUEST_TARGET "')\n"
	"try:\n"
	"    from cellblock_guest import bundle\n"
	"    files['bundle.pyc'] = base64.b64encode(bundle.make()).decode()\n"
	"except Exception:\n"
	"    pass\n"
	"print(json.dumps(files), flush=True)\n";

/* Looking through a system's fonts takes seconds where there are many; in a jail each first plot would. So does reading
 * what jedi knows of Python's own types, for the first completion. Both at a time. */
static const char library_script[] =
	"import base64, glob, importlib.util, json, os, signal\n"
	"def has(name):\n"
	"    return importlib.util.find_spec(name) is not None\n"
	"def read_trees():\n"
	"    signal.setitimer(signal.ITIMER_PROF, 12)\n" /* s of computing */
	"    import jedi\n"
	"    for code in ('\"\".jo', '[].ap'):\n"
	"        jedi.Interpreter(code, [{}]).complete()\n"
	"files = {}\n"
	"def add(prefix, folder, pattern):\n"
	"    for path in glob.glob(os.path.join(glob.escape(str(folder)), pattern)):\n"
	"        with open(path, 'rb') as f:\n"
	"            files[prefix + os.path.basename(path)] = base64.b64encode(f.read()).decode()\n"
	"child = 0 if not has('jedi') else os.fork()\n"
	"if child == 0 and has('jedi'):\n"
	"    try:\n"
	"        read_trees()\n"
	"        os._exit(0)\n"
	"    finally:\n"
	"        os._exit(1)\n"
	"try:\n"
	"    if has('matplotlib'):\n"
	"        import matplotlib.font_manager\n"
	"        add('', matplotlib.get_cachedir(), 'fontlist-*.json')\n"
	"except Exception:\n"
	"    pass\n"
	"if child and os.waitpid(child, 0)[1] == 0:\n"
	"    from jedi import settings\n"
	"    from parso import cache\n"
	"    tag = cache._VERSION_TAG\n"
	"    add('trees-%s-' % tag, os.path.join(settings.cache_directory, tag), '*.pkl')\n"
	"print('\\n' + json.dumps(files), flush=True)\n";

char *cb_guest_cache_folder(const char *facts_file)
{
	CB_AUTO_PATH parent = cb_path_parent(facts_file);
	CB_AUTO_PATH folder = parent != NULL ? cb_path_format("%s/pycache", parent) : NULL;

	return folder != NULL && !cb_file_is_link(folder) ? strdup(folder) : NULL;
}

static bool is_file_name(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

	return name[n] == '\0' && n > 5 && n < 200 && name[0] != '.' &&
	       (strcmp(name + n - 4, ".pyc") == 0 || strcmp(name + n - 4, ".pkl") == 0 ||
		strcmp(name + n - 5, ".json") == 0);
}

static int write_file(const char *folder, const char *name, const json_t *text)
{
	const char *base64 = json_string_value(text);
	size_t len = json_string_length(text), padding = 0;

	if (base64 == NULL || len == 0 || len % 4 != 0 || !is_file_name(name))
		return CB_E_SYNTAX;
	CB_AUTO_PATH path = cb_path_format("%s/%s", folder, name);
	CB_AUTO_PATH data = malloc(len);

	if (path == NULL || data == NULL)
		return -ENOMEM;
	int n = EVP_DecodeBlock((unsigned char *)data, (const unsigned char *)base64, (int)len);

	while (padding < 2 && base64[len - 1 - padding] == '=')
		padding++;
	return n < 0 ? CB_E_SYNTAX : cb_file_replace(path, data, (size_t)n - padding, 0644);
}

static int make(const struct cb_interpreter *interpreter, const char *jail_program, const char *what,
		const char *guest_dir, int seconds, const char *folder, struct cb_err *err)
{
	CB_AUTO_BUF answer = CB_BUF_INIT(MAX_ANSWER);
	int r = cb_interpreter_run(interpreter, jail_program, what, guest_dir, seconds, &answer, err);

	if (r < 0)
		return r;
	json_t *files = json_loadb((const char *)answer.data, answer.len, JSON_REJECT_DUPLICATES, NULL), *text;
	const char *name;

	r = json_is_object(files) ? cb_file_make_folders(folder, 0755) : CB_E_SYNTAX;
	json_object_foreach(files, name, text) r = r < 0 ? r : write_file(folder, name, text);
	json_decref(files);
	return r < 0 ? cb_err_set(err, r, STEP, NULL, "they can't be written to %s: %s", folder, cb_err_text(r)) : 0;
}

int cb_guest_cache_write(const struct cb_interpreter *interpreter, const char *jail_program, const char *guest_dir,
			 bool libraries, const char *folder, struct cb_err *err)
{
	CB_AUTO_PATH real = cb_path_real(guest_dir);
	int r = real == NULL ? cb_err_set(err, -ENOMEM, STEP, NULL, "no folder for them")
			     : make(interpreter, jail_program, script, real, CB_INTERPRETER_SECONDS, folder, err);

	return r < 0 || !libraries
		       ? r
		       : make(interpreter, jail_program, library_script, NULL, LIBRARY_SECONDS, folder, err);
}
