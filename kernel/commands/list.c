/* `cellblock list`: the kernels that run, and what they use.
 *
 * Role: asks each kernel with its own connection file. Trust domain: supervisor's program. Names in the answers were
 * chosen by others: they are printed so that they do a terminal no harm.
 */
#include <cellblock/visible.h>

#include "ask_kernel.h"
#include "command.h"
#include "kernelspec.h"
#include "jupyter/message.h"
#include "policy/paths.h"

#define SHORT_ID 8

static double number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static double age_of(const struct cb_running *k)
{
	const char *started = json_string_value(cb_running_about(k, "started"));
	double since = started != NULL ? cb_date_now() - cb_date_parse(started, strlen(started)) : -1;

	return since > 0 ? since : 0;
}

static int print_json(const struct cb_running_list *list)
{
	json_t *kernels = json_array(), *root;

	for (size_t i = 0; i < list->count; i++) {
		const struct cb_running *k = &list->item[i];
		json_t *about = json_deep_copy(json_object_get(k->said, "cellblock"));

		if (about == NULL)
			about = json_object();
		json_object_set_new(about, "id", json_string(k->id));
		json_object_set_new(about, "connection_file", json_string(k->file));
		json_object_set_new(about, "answers", json_boolean(k->said != NULL));
		if (k->said != NULL) {
			json_object_set(about, "memory_bytes", json_object_get(k->said, "kernel_memory"));
			json_object_set(about, "memory_limit_bytes", json_object_get(k->said, "kernel_memory_limit"));
			json_object_set_new(about, "age_s", json_real(age_of(k)));
		}
		json_array_append_new(kernels, about);
	}
	root = json_pack("{s:o}", "kernels", kernels);
	(void)json_dumpf(root, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(root);
	return 0;
}

/* The start of an id is enough where no other begins so. */
static int id_width(const struct cb_running_list *list)
{
	for (size_t i = 1; i < list->count; i++)
		if (strncmp(list->item[i - 1].id, list->item[i].id, SHORT_ID) == 0)
			return (int)sizeof(list->item[i].id) - 1;
	return SHORT_ID;
}

static const char *text(const struct cb_running *k, const char *key)
{
	const char *value = json_string_value(cb_running_about(k, key));

	return value != NULL ? value : "-";
}

static void print_kernel(const struct cb_running *k, int width)
{
	char cpu[16], age[16];
	const char *name = cb_running_name(k);

	printf("%-*.*s  ", width, width, k->id);
	if (k->said == NULL) {
		printf("does not answer\n");
		return;
	}
	cb_command_time_text(json_number_value(cb_running_about(k, "cpu_s")), cpu);
	cb_command_time_text(age_of(k), age);
	printf("%7.0fM %6s %6s  %-9s  ", number(k->said, "kernel_memory") / (1 << 20), cpu, age, text(k, "level"));
	printf("%s  %s  %s\n", cb_shown(cb_path_name(text(k, "policy"))), cb_shown(name != NULL ? name : "-"),
	       cb_shown(text(k, "workspace")));
}

/* As in an environment of pipx or uv tool, whose kernelspecs no Jupyter but its own would see. */
static void tell_if_invisible(void)
{
	struct cb_install_paths install_paths = { 0 };
	struct cb_err ignored = { 0 };

	if (cb_install_paths_find(&install_paths, &ignored) < 0)
		return;
	CB_AUTO_STRV seen = { 0 };

	if (cb_kernelspec_visible(&install_paths, &seen) == 0 && seen.count == 0)
		fprintf(stderr, "%s", "no kernelspec of this Cellblock lies where Jupyter looks: `cellblock install "
				      "--user` writes one\n");
	cb_install_paths_release(&install_paths);
}

int cb_command_list(const struct cb_options *o)
{
	struct cb_running_list list = { .count = 0 };
	struct cb_err err = { 0 };
	int r = cb_kernels_running(&list, &err);

	if (r == 0 && o->json) {
		r = print_json(&list);
	} else if (r == 0 && list.count == 0) {
		fprintf(stderr, "no kernel runs\n");
		tell_if_invisible();
	} else if (r == 0) {
		int width = id_width(&list);

		printf("%-*s  %8s %6s %6s  %-9s  %s\n", width, "ID", "MEMORY", "CPU", "AGE", "LEVEL",
		       "POLICY  NOTEBOOK OR CLIENT  WORKSPACE");
		for (size_t i = 0; i < list.count; i++)
			print_kernel(&list.item[i], width);
	}
	cb_kernels_release(&list);
	return r < 0 ? cb_command_fail("list", &err) : 0;
}
