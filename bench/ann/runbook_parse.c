/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/ann/runbook.h"

#include <string.h>
#include <yaml.h>

/* The longest published runbooks have some thousand steps. */
#define RUNBOOK_MAX_BYTES ((uint64_t)16 << 20)

/* A runbook is a mapping of mappings of mappings. */
#define RUNBOOK_MAX_DEPTH 16

typedef struct parse {
        const char *path;
        size_t n_rows;
        runbook *book;
        yaml_document_t document;
} parse;

const char *runbook_operation_name(int32_t operation)
{
        static const char *const names[] = {"unknown", "insert", "delete", "replace", "search"};
        return names[operation >= RUNBOOK_INSERT && operation <= RUNBOOK_SEARCH ? operation : 0];
}

/* --- nodes --------------------------------------------------------------------------------------------------------------- */

static const yaml_node_t *node_at(parse *p, int item)
{
        return yaml_document_get_node(&p->document, item);
}

/* The text of a scalar, else NULL; also if it holds control characters, which would tear a message apart. */
static const char *text_of(const yaml_node_t *node)
{
        if (node == NULL || node->type != YAML_SCALAR_NODE)
                return NULL;
        for (size_t i = 0; i < node->data.scalar.length; i++)
                if (node->data.scalar.value[i] < 0x20)
                        return NULL;
        return (const char *)node->data.scalar.value;
}

static bool size_of(const yaml_node_t *node, size_t *out)
{
        const char *text = text_of(node);
        *out = 0;
        if (text == NULL || *text == '\0')
                return false;
        for (; *text != '\0'; text++)
                if (*text < '0' || *text > '9' || !dci_mul(*out, 10, out) || !dci_add(*out, (size_t)(*text - '0'), out))
                        return false;
        return true;
}

static const yaml_node_t *value_of(parse *p, const yaml_node_t *mapping, const char *key)
{
        for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start; pair < mapping->data.mapping.pairs.top;
             pair++) {
                const char *name = text_of(node_at(p, pair->key));
                if (name != NULL && strcmp(name, key) == 0)
                        return node_at(p, pair->value);
        }
        return NULL;
}

/* --- one step ------------------------------------------------------------------------------------------------------------- */

static dci_status read_range(parse *p, const yaml_node_t *node, size_t number, const char *first, const char *last,
                             size_t *out_start, size_t *out_end)
{
        const char *const keys[] = {first, last};
        size_t *const values[] = {out_start, out_end};
        for (size_t i = 0; i < 2; i++) {
                const yaml_node_t *value = value_of(p, node, keys[i]);
                if (value == NULL)
                        return dci_fail(DCI_ERR_FORMAT, "%s: step %zu has no '%s'", p->path, number, keys[i]);
                if (!size_of(value, values[i]))
                        return dci_fail(DCI_ERR_FORMAT, "%s: step %zu: '%s' is no integer of 0 or more", p->path,
                                        number, keys[i]);
        }
        if (*out_start >= *out_end || *out_end > p->book->max_pts)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s: step %zu: '%s' %zu to '%s' %zu is no range within 0 to max_pts, %zu", p->path,
                                number, first, *out_start, last, *out_end, p->book->max_pts);
        return DCI_OK;
}

static dci_status read_replace(parse *p, const yaml_node_t *node, size_t number, runbook_step *step)
{
        size_t last_row = 0;
        DCI_TRY(read_range(p, node, number, "tags_start", "tags_end", &step->start, &step->end));
        DCI_TRY(read_range(p, node, number, "ids_start", "ids_end", &step->first_row, &last_row));
        if (last_row - step->first_row != step->end - step->start)
                return dci_fail(DCI_ERR_FORMAT, "%s: step %zu replaces %zu tags by %zu ids", p->path, number,
                                step->end - step->start, last_row - step->first_row);
        return DCI_OK;
}

static dci_status read_step(parse *p, const yaml_node_t *node, size_t number, runbook_step *step)
{
        static const ptrdiff_t n_keys[] = {0, 3, 3, 5, 1};
        if (node == NULL || node->type != YAML_MAPPING_NODE)
                return dci_fail(DCI_ERR_FORMAT, "%s: step %zu is no mapping", p->path, number);
        const char *name = text_of(value_of(p, node, "operation"));
        if (name == NULL)
                return dci_fail(DCI_ERR_FORMAT, "%s: step %zu has no 'operation'", p->path, number);
        for (int32_t i = RUNBOOK_INSERT; i <= RUNBOOK_SEARCH; i++)
                if (strcmp(name, runbook_operation_name(i)) == 0)
                        step->operation = i;
        if (step->operation == 0)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s: step %zu: operation '%.40s' is none of insert, delete, replace, search", p->path,
                                number, name);
        if (step->operation == RUNBOOK_REPLACE) {
                DCI_TRY(read_replace(p, node, number, step));
        } else if (step->operation != RUNBOOK_SEARCH) {
                DCI_TRY(read_range(p, node, number, "start", "end", &step->start, &step->end));
                step->first_row = step->start;
        }
        /* All that is wanted is there, so any more is a key twice or one that means nothing here. */
        const ptrdiff_t pairs = node->data.mapping.pairs.top - node->data.mapping.pairs.start;
        if (pairs != n_keys[step->operation])
                return dci_fail(DCI_ERR_FORMAT, "%s: step %zu has %td keys, '%s' takes %td", p->path, number, pairs,
                                name, n_keys[step->operation]);
        return DCI_OK;
}

/* --- the book -------------------------------------------------------------------------------------------------------------- */

/* Steps are the keys that are integers. Counts them, and refuses other keys that mean nothing. */
static dci_status count_steps(parse *p, const yaml_node_t *node, size_t *out_n)
{
        size_t number, n = 0, max_pts = 0;
        for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
             pair++) {
                const yaml_node_t *key = node_at(p, pair->key);
                const char *name = text_of(key);
                const bool is_max = name != NULL && strcmp(name, "max_pts") == 0;
                const bool known = is_max || (name != NULL && strcmp(name, "gt_url") == 0);
                max_pts += is_max;
                if (!known && !size_of(key, &number))
                        return dci_fail(DCI_ERR_FORMAT, "%s: '%.40s' is neither a step's number nor max_pts or gt_url",
                                        p->path, name != NULL ? name : "(no text)");
                n += !known;
        }
        *out_n = n;
        if (max_pts != 1)
                return dci_fail(DCI_ERR_FORMAT, "%s: '%s' has %s max_pts", p->path, p->book->dataset,
                                max_pts == 0 ? "no" : "more than one");
        return n > 0 ? DCI_OK : dci_fail(DCI_ERR_FORMAT, "%s: '%s' has no steps", p->path, p->book->dataset);
}

static dci_status read_steps(parse *p, const yaml_node_t *node)
{
        runbook *book = p->book;
        DCI_TRY(count_steps(p, node, &book->n_steps));
        if (!size_of(value_of(p, node, "max_pts"), &book->max_pts) || book->max_pts == 0 || book->max_pts > p->n_rows)
                return dci_fail(DCI_ERR_FORMAT, "%s: max_pts must be an integer of 1 to the number of rows, %zu",
                                p->path, p->n_rows);
        book->steps = dci_alloc(book->context, book->n_steps, sizeof *book->steps);
        if (book->steps == NULL)
                return DCI_ERR_MEMORY;
        memset(book->steps, 0, book->n_steps * sizeof *book->steps);
        for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
             pair++) {
                size_t number;
                if (!size_of(node_at(p, pair->key), &number))
                        continue;
                if (number == 0 || number > book->n_steps)
                        return dci_fail(DCI_ERR_FORMAT,
                                        "%s: step %zu: the %zu steps must be numbered from 1 without gaps", p->path,
                                        number, book->n_steps);
                if (book->steps[number - 1].operation != 0)
                        return dci_fail(DCI_ERR_FORMAT, "%s: step %zu is there twice", p->path, number);
                DCI_TRY(read_step(p, node_at(p, pair->value), number, &book->steps[number - 1]));
        }
        return DCI_OK;
}

/* NULL, and dci_fail has said why, when there are no such steps. */
static const yaml_node_t *choose_dataset(parse *p, const char *wanted)
{
        const yaml_node_t *root = yaml_document_get_root_node(&p->document);
        if (root == NULL || root->type != YAML_MAPPING_NODE) {
                dci_fail(DCI_ERR_FORMAT, "%s: a runbook is a mapping from data sets to their steps", p->path);
                return NULL;
        }
        const yaml_node_pair_t *first = root->data.mapping.pairs.start;
        const ptrdiff_t n = root->data.mapping.pairs.top - first;
        const char *name = wanted != NULL ? wanted : n == 1 ? text_of(node_at(p, first->key)) : NULL;
        if (name == NULL) {
                dci_fail(DCI_ERR_FORMAT, "%s: holds %td data sets; --dataset names one", p->path, n);
                return NULL;
        }
        bench_name(p->book->dataset, sizeof p->book->dataset, name);
        const yaml_node_t *steps = value_of(p, root, name);
        if (steps != NULL && steps->type == YAML_MAPPING_NODE)
                return steps;
        dci_fail(DCI_ERR_FORMAT, "%s: holds no steps for a data set '%.100s'", p->path, name);
        return NULL;
}

/* Marks which ids live, step by step. */
static dci_status rehearse(const parse *p)
{
        const runbook *book = p->book;
        unsigned char *live = dci_alloc(book->context, book->max_pts, 1);
        dci_status status = live != NULL ? DCI_OK : DCI_ERR_MEMORY;
        if (status == DCI_OK)
                memset(live, 0, book->max_pts);
        for (size_t s = 0; status == DCI_OK && s < book->n_steps; s++) {
                const runbook_step *step = &book->steps[s];
                const bool wanted = step->operation != RUNBOOK_INSERT;
                for (size_t id = step->start; status == DCI_OK && id < step->end; id++) {
                        if ((live[id] != 0) != wanted)
                                status = dci_fail(DCI_ERR_FORMAT, "%s: step %zu wants to %s id %zu, which is %s there",
                                                  p->path, s + 1, runbook_operation_name(step->operation), id,
                                                  wanted ? "not" : "already");
                        live[id] = step->operation != RUNBOOK_DELETE;
                }
        }
        dci_free(book->context, live, book->max_pts, 1);
        return status;
}

static dci_status read_document(parse *p, const char *dataset)
{
        const yaml_node_t *steps = choose_dataset(p, dataset);
        if (steps == NULL)
                return DCI_ERR_FORMAT;
        dci_status status = read_steps(p, steps);
        return status == DCI_OK ? rehearse(p) : status;
}

static dci_status fail_yaml(const char *path, const yaml_parser_t *parser)
{
        if (parser->error == YAML_MEMORY_ERROR)
                return dci_fail(DCI_ERR_MEMORY, "%s: no memory to read it", path);
        return dci_fail(DCI_ERR_FORMAT, "%s: not YAML (line %zu: %s)", path, parser->problem_mark.line + 1,
                        parser->problem != NULL ? parser->problem : "unreadable");
}

/* libyaml's time grows with the square of the depth, so brackets without end are found before they are loaded. */
static dci_status check_depth(yaml_parser_t *parser, const char *path)
{
        yaml_event_t event;
        yaml_event_type_t type = YAML_NO_EVENT;
        size_t depth = 0;
        while (type != YAML_STREAM_END_EVENT) {
                if (!yaml_parser_parse(parser, &event))
                        return fail_yaml(path, parser);
                type = event.type;
                yaml_event_delete(&event);
                depth += type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT;
                depth -= type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT;
                if (depth > RUNBOOK_MAX_DEPTH)
                        return dci_fail(DCI_ERR_FORMAT, "%s: nested deeper than a runbook is", path);
        }
        return DCI_OK;
}

static dci_status load(yaml_parser_t *parser, parse *p, const char *dataset)
{
        if (!yaml_parser_load(parser, &p->document))
                return fail_yaml(p->path, parser);
        dci_status status = read_document(p, dataset);
        yaml_document_delete(&p->document);
        return status;
}

/* Reads the file twice: first checks its depth, then loads it. */
static dci_status read_file(FILE *file, parse *p, const char *dataset)
{
        dci_status status = DCI_OK;
        for (int pass = 0; status == DCI_OK && pass < 2; pass++) {
                yaml_parser_t parser;
                rewind(file);
                if (!yaml_parser_initialize(&parser))
                        return dci_fail(DCI_ERR_MEMORY, "%s: no memory to read it", p->path);
                yaml_parser_set_input_file(&parser, file);
                status = pass == 0 ? check_depth(&parser, p->path) : load(&parser, p, dataset);
                yaml_parser_delete(&parser);
        }
        return status;
}

dci_status runbook_read(dci_context *context, const char *path, const char *dataset, size_t n_rows, runbook *out)
{
        FILE *file;
        uint64_t bytes;
        parse p = {.path = path, .n_rows = n_rows, .book = out};
        memset(out, 0, sizeof *out);
        out->context = context;
        dci_status status = bench_open(path, &file, &bytes);
        if (status != DCI_OK)
                return status;
        if (bytes > RUNBOOK_MAX_BYTES)
                status = dci_fail(DCI_ERR_LIMIT, "%s: %llu bytes are too many for a runbook, at most %llu are read",
                                  path, (unsigned long long)bytes, (unsigned long long)RUNBOOK_MAX_BYTES);
        else
                status = read_file(file, &p, dataset);
        fclose(file);
        if (status != DCI_OK)
                runbook_free(out);
        return status;
}

void runbook_free(runbook *book)
{
        dci_free(book->context, book->steps, book->n_steps, sizeof *book->steps);
        memset(book, 0, sizeof *book);
}
