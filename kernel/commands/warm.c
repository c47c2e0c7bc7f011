/* `cellblock warm`: the zygotes of warm start that run for this user, and their end.
 *
 * Role: prints what ask_zygote.c finds. Trust domain: supervisor's program. What a zygote says was made visible there:
 * it does a terminal no harm. Exit status: 1 also if one did not end.
 */
#include <cellblock/fd.h>
#include <errno.h>
#include <jansson.h>

#include "ask_zygote.h"
#include "command.h"
#include "policy/paths.h"
#include "setup/warm_place.h"

#define SHORT_KEY 8
#define COLUMN_MAX 48

static const char *const states[] = { [CB_ZYGOTE_STARTING] = "starting",
				      [CB_ZYGOTE_SILENT] = "does not answer",
				      [CB_ZYGOTE_READY] = "ready",
				      [CB_ZYGOTE_FAILED] = "could not serve" };

static int print_object(json_t *root)
{
	(void)json_dumpf(root, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	putchar('\n');
	json_decref(root);
	return 0;
}

static json_t *split(const char *names)
{
	json_t *list = json_array();

	for (; *names != '\0'; names += strcspn(names, ","), names += *names == ',')
		json_array_append_new(list, json_stringn(names, strcspn(names, ",")));
	return list;
}

static void put_number(json_t *object, const char *key, int64_t value)
{
	json_object_set_new(object, key, value >= 0 ? json_integer(value) : json_null());
}

static int print_json(const struct cb_zygote_list *list)
{
	json_t *zygotes = json_array();

	for (size_t i = 0; i < list->count; i++) {
		const struct cb_zygote *z = &list->item[i];
		json_t *about = json_object();

		json_object_set_new(about, "key", json_string(z->key));
		json_object_set_new(about, "state", json_string(states[z->state]));
		put_number(about, "pid", z->pid > 0 ? z->pid : -1);
		put_number(about, "memory_bytes", z->memory);
		put_number(about, "age_s", z->age);
		put_number(about, "kernels", z->living);
		put_number(about, "made", z->made);
		json_object_set_new(about, "python", z->python[0] != '\0' ? json_string(z->python) : json_null());
		json_object_set_new(about, "preloaded", split(z->preloaded));
		json_object_set_new(about, "left_out", split(z->left_out));
		json_object_set_new(about, "why", z->why[0] != '\0' ? json_string(z->why) : json_null());
		json_array_append_new(zygotes, about);
	}
	return print_object(json_pack("{s:o}", "zygotes", zygotes));
}

static const char *text(const char *value)
{
	return value[0] != '\0' ? value : "-";
}

static void number_text(int64_t value, char ret[24])
{
	snprintf(ret, 24, "%lld", (long long)value);
	if (value < 0)
		snprintf(ret, 24, "-");
}

static void print_zygote(const struct cb_zygote *z, int python, int preloaded)
{
	char age[16] = "-", memory[24] = "-", living[24], made[24];

	printf("%.*s  ", SHORT_KEY, z->key);
	if (z->state != CB_ZYGOTE_READY) {
		printf("%s", states[z->state]);
		if (z->pid > 0)
			printf(" (process %d)", z->pid);
		if (z->state == CB_ZYGOTE_FAILED)
			printf(": %s\n%*s  `cellblock warm --stop` has the next kernel try again at once", z->why,
			       SHORT_KEY, "");
		putchar('\n');
		return;
	}
	if (z->age >= 0)
		cb_command_time_text((double)z->age, age);
	if (z->memory >= 0)
		snprintf(memory, sizeof(memory), "%.0fM", (double)z->memory / (1 << 20));
	number_text(z->living, living);
	number_text(z->made, made);
	printf("%-*s  %-*s  %6s %8s %8s %6s\n", python, text(z->python), preloaded, text(z->preloaded), age, memory,
	       living, made);
	if (z->left_out[0] != '\0')
		printf("%*s  can't import and has left out: %s\n", SHORT_KEY, "", z->left_out);
}

static int wider(int width, const char *value)
{
	size_t n = strlen(value);

	return n > COLUMN_MAX ? COLUMN_MAX : (int)n > width ? (int)n : width;
}

static void print_table(const struct cb_zygote_list *list)
{
	int python = wider(0, "PYTHON"), preloaded = wider(0, "PRELOADED");

	for (size_t i = 0; i < list->count; i++) {
		python = wider(python, list->item[i].python);
		preloaded = wider(preloaded, list->item[i].preloaded);
	}
	printf("%-*s  %-*s  %-*s  %6s %8s %8s %6s\n", SHORT_KEY, "KEY", python, "PYTHON", preloaded, "PRELOADED", "AGE",
	       "MEMORY", "KERNELS", "MADE");
	for (size_t i = 0; i < list->count; i++)
		print_zygote(&list->item[i], python, preloaded);
}

static void tell_none(void)
{
	fprintf(stderr, "no zygote runs: the next kernel whose warm.mode is \"auto\" starts one\n");
}

static void tell_not_ended(const struct cb_zygote *z, int code)
{
	fprintf(stderr, "cellblock warm: %.*s did not end", SHORT_KEY, z->key);
	if (code != -ETIMEDOUT)
		fprintf(stderr, ": %s", cb_err_text(code));
	else if (z->pid > 0)
		fprintf(stderr, " in two seconds; `kill %d` ends it", z->pid);
	else
		fprintf(stderr, " in two seconds");
	fprintf(stderr, "\n");
}

static int stop(int folder, const struct cb_zygote_list *list, bool json)
{
	json_t *ended = json_array(), *others = json_array();
	bool all = true;

	for (size_t i = 0; i < list->count; i++) {
		const struct cb_zygote *z = &list->item[i];
		int r;

		if (z->state == CB_ZYGOTE_FAILED) { /* swept below */
			if (!json)
				printf("%.*s is tried again: the next kernel starts it\n", SHORT_KEY, z->key);
			continue;
		}
		r = cb_zygote_end(folder, z->key);
		json_array_append_new(r == 0 ? ended : others, json_string(z->key));
		if (r < 0)
			tell_not_ended(z, r);
		else if (!json)
			printf("%.*s has ended\n", SHORT_KEY, z->key);
		all = all && r == 0;
	}
	if (!json && json_array_size(ended) > 0)
		printf("kernels that were copied from %s live on\n", json_array_size(ended) > 1 ? "them" : "it");
	if (json) {
		print_object(json_pack("{s:o, s:o}", "ended", ended, "not_ended", others));
	} else {
		json_decref(ended);
		json_decref(others);
	}
	cb_zygotes_sweep(folder);
	return all ? 0 : 1;
}

static int work(const struct cb_options *o, int folder, struct cb_err *err)
{
	struct cb_zygote_list list = { 0 };
	int r = folder >= 0 ? cb_zygotes_find(folder, &list) : 0;

	if (r < 0)
		return cb_err_set(err, r, "warm start", NULL, "the folder of zygotes can't be read: %s",
				  cb_err_text(r));
	if (list.count == 0 && !o->json)
		tell_none();
	if (o->stop)
		r = stop(folder, &list, o->json);
	else if (o->json)
		r = print_json(&list);
	else if (list.count > 0)
		print_table(&list);
	cb_zygotes_release(&list);
	return r;
}

int cb_command_warm(const struct cb_options *o)
{
	CB_AUTO_PATH place = cb_warm_place();
	struct cb_err err = { 0 };
	CB_AUTO_FD folder = -1;
	int r = place != NULL ? cb_warm_folder_open(place, false, &folder, &err)
			      : cb_err_set(&err, -ENOMEM, "warm start", NULL, "out of memory");

	if (r == 0 || r == -ENOENT)
		r = work(o, folder, &err);
	return r < 0 ? cb_command_fail("warm", &err) : r;
}
