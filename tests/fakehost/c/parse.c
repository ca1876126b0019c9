/* The text of a host's state, read into structures. */
#include "state.h"

#include <stdio.h>
#include <string.h>

unsigned long long fake_number(const char *s)
{
	unsigned long long value = 0;

	while (*s == ' ' || *s == '-')
		s++;
	if (s[0] == '0' && s[1] == 'x') {
		for (s += 2;; s++) {
			if (*s >= '0' && *s <= '9')
				value = value * 16 + (unsigned)(*s - '0');
			else if (*s >= 'a' && *s <= 'f')
				value = value * 16 + (unsigned)(*s - 'a' + 10);
			else
				return value;
		}
	}
	for (; *s >= '0' && *s <= '9'; s++)
		value = value * 10 + (unsigned)(*s - '0');
	return value;
}

static int signed_number(const char *s)
{
	return *s == '-' ? -(int)fake_number(s + 1) : (int)fake_number(s);
}

void fake_copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

static char *word(char **rest)
{
	char *start = *rest, *end = strchr(start, ' ');

	if (end)
		*end++ = 0;
	*rest = end ? end : start + strlen(start);
	return start;
}

static void parse_list(struct gpu *g, const char *key, char *value)
{
	if (!strcmp(key, "link") && g->nlinks < MAX_LINKS) {
		struct link *l = &g->links[g->nlinks++];

		l->type = signed_number(word(&value));
		fake_copy(l->bus, sizeof l->bus, value);
	} else if (!strcmp(key, "proc") && g->nprocs < MAX_PROCS) {
		struct process *p = &g->procs[g->nprocs++];

		p->pid = (unsigned)fake_number(word(&value));
		p->used = fake_number(word(&value));
		p->kind = *word(&value);
		p->gi = (unsigned)signed_number(word(&value));
		p->ci = (unsigned)signed_number(word(&value));
	} else if (!strcmp(key, "md") && g->nmig < MAX_MIG) {
		struct mig *m = &g->migs[g->nmig++];
		unsigned *fields[] = {&m->gi, &m->ci, &m->gi_minor, &m->ci_minor, &m->profile_id,
				      &m->number, &m->slices, &m->ci_slices, &m->sms, &m->mib};

		for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
			*fields[i] = (unsigned)fake_number(word(&value));
		m->used = fake_number(word(&value));
		fake_copy(m->uuid, sizeof m->uuid, word(&value));
		fake_copy(m->name, sizeof m->name, value);
	}
}

static void parse_gpu(struct gpu *g, const char *key, char *value)
{
	struct { const char *key; char *to; size_t size; } texts[] = {
		{"bus", g->bus, sizeof g->bus}, {"uuid", g->uuid, sizeof g->uuid},
		{"name", g->name, sizeof g->name}, {"vbios", g->vbios, sizeof g->vbios},
		{"serial", g->serial, sizeof g->serial}, {"part", g->part, sizeof g->part},
		{"cpus", g->cpus, sizeof g->cpus}, {"topo", g->topo, sizeof g->topo},
		{"p2p", g->p2p, sizeof g->p2p},
	};
	struct { const char *key; unsigned long long *to; } longs[] = {
		{"total", &g->total}, {"used", &g->used}, {"reserved", &g->reserved},
		{"energy", &g->energy},
	};
	struct { const char *key; unsigned *to; } numbers[] = {
		{"minor", (unsigned *)&g->minor}, {"numa", (unsigned *)&g->numa},
		{"broken", (unsigned *)&g->broken}, {"lost", (unsigned *)&g->lost},
		{"lazy", (unsigned *)&g->lazy}, {"mig", (unsigned *)&g->mig_mode},
		{"device", &g->device_id}, {"subsystem", &g->subsystem_id}, {"class", &g->pci_class},
		{"cc_major", &g->cc_major}, {"cc_minor", &g->cc_minor}, {"brand", &g->brand},
		{"architecture", &g->architecture}, {"sms", &g->sms}, {"max_mig", &g->max_mig},
		{"link_version", &g->link_version}, {"ecc", &g->ecc}, {"fans", &g->fans},
		{"bar1", &g->bar1_mib}, {"sm_clock", &g->sm_clock}, {"mem_clock", &g->mem_clock},
		{"power_limit", &g->power_limit}, {"power", &g->power},
		{"temperature", &g->temperature}, {"gpu_util", &g->gpu_util},
		{"mem_util", &g->mem_util}, {"persistence", &g->persistence},
		{"compute_mode", &g->compute_mode},
	};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (!strcmp(key, texts[i].key))
			fake_copy(texts[i].to, texts[i].size, value);
	for (size_t i = 0; i < sizeof longs / sizeof *longs; i++)
		if (!strcmp(key, longs[i].key))
			*longs[i].to = fake_number(value);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (!strcmp(key, numbers[i].key))
			*numbers[i].to = (unsigned)signed_number(value);
	parse_list(g, key, value);
}

void fake_parse(char *data, struct state *s)
{
	struct { const char *key; unsigned *to; } numbers[] = {
		{"cuda", &s->cuda}, {"caps_major", &s->caps_major}, {"delay_us", &s->delay_us},
		{"hang", &s->hang}, {"fabric", &s->fabric},
	};
	struct gpu *g = NULL;

	memset(s, 0, offsetof(struct state, gpus));
	for (char *line = data, *next; line && *line; line = next) {
		char *value;

		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		value = line;
		word(&value);
		if (!strcmp(line, "gpu") && s->count < MAX_GPUS) {
			g = &s->gpus[s->count];
			memset(g, 0, sizeof *g);
			g->host_index = (int)s->count++;
		} else if (g) {
			parse_gpu(g, line, value);
		} else if (!strcmp(line, "driver")) {
			fake_copy(s->driver, sizeof s->driver, value);
		}
		for (size_t i = 0; !g && i < sizeof numbers / sizeof *numbers; i++)
			if (!strcmp(line, numbers[i].key))
				*numbers[i].to = (unsigned)fake_number(value);
	}
}
