/* What the fake libraries of the tests have in common: a text file that says what they tell and do.
 *
 * Lines are `key=value`, `#` begins a comment. A key may be preceded by `gpuN.`, keys of links by `linkN.`; the
 * most exact line wins: gpu3.link4.replay, gpu3.replay, link4.replay, replay; of equal keys the last one. The
 * file is read again whenever it has changed.
 *
 * Misdeeds, for one GPU or for all; TOPIC is a word each library defines, or * for every one
 *   error.TOPIC=15            the call fails (a handle has a key of its own, so * leaves it out)
 *   delay_ms=20 delay_ms.TOPIC=500   it is slow
 *   hang=TOPIC                it never returns, with every signal blocked that can be
 *   segv=TOPIC abort=TOPIC    it kills the process
 *   trace=FILE                appends what the library names when it is loaded, started and stopped
 */

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NOBODY = -1, MAX_LINES = 512 };

static struct { char *key, *value; } lines[MAX_LINES];
static int count;

/* The file */

static void read_file(const char *path) {
    static struct stat seen;
    struct stat now;
    FILE *file;
    char line[1024];
    if (!path || stat(path, &now)) return;
    if (now.st_ino == seen.st_ino && !memcmp(&now.st_mtim, &seen.st_mtim, sizeof now.st_mtim)) return;
    if (!(file = fopen(path, "r"))) return;
    seen = now;
    count = 0;
    while (count < MAX_LINES && fgets(line, sizeof line, file)) {
        char *equals = strchr(line, '=');
        if (*line == '#' || !equals) continue;
        *equals = 0;
        equals[1 + strcspn(equals + 1, "\n")] = 0;
        lines[count].key = strdup(line);
        lines[count++].value = strdup(equals + 1);
    }
    fclose(file);
}

static const char *exactly(const char *key) {
    for (int i = count - 1; i >= 0; i--)
        if (!strcmp(lines[i].key, key)) return lines[i].value;
    return 0;
}

static const char *look(int gpu, int link, const char *key) {
    char name[256];
    const char *value = 0;
    if (!count) return 0;
    if (gpu >= 0 && link >= 0) {
        snprintf(name, sizeof name, "gpu%d.link%d.%s", gpu, link, key);
        value = exactly(name);
    }
    if (!value && gpu >= 0) {
        snprintf(name, sizeof name, "gpu%d.%s", gpu, key);
        value = exactly(name);
    }
    if (!value && link >= 0) {
        snprintf(name, sizeof name, "link%d.%s", link, key);
        value = exactly(name);
    }
    return value ? value : exactly(key);
}

static const char *text(int gpu, const char *key, const char *otherwise) {
    const char *value = look(gpu, NOBODY, key);
    return value ? value : otherwise;
}

static long long number(int gpu, const char *key, long long otherwise) {
    const char *value = look(gpu, NOBODY, key);
    return value ? strtoll(value, 0, 0) : otherwise;
}

/* Misdeeds */

static void hang(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    for (;;) sleep(60);
}

static void rest(long long ms) {
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    if (ms > 0) nanosleep(&pause, 0);
}

static int meant(int gpu, const char *deed, const char *topic) {
    const char *value = look(gpu, NOBODY, deed);
    return value && (!strcmp(value, topic) || !strcmp(value, "*"));
}

static int misdeed(int gpu, const char *topic) {
    char key[64];
    if (!count) return 0;
    if (meant(gpu, "hang", topic)) hang();
    if (meant(gpu, "segv", topic)) raise(SIGSEGV);
    if (meant(gpu, "abort", topic)) abort();
    snprintf(key, sizeof key, "delay_ms.%s", topic);
    rest(number(gpu, key, number(gpu, "delay_ms", 0)));
    snprintf(key, sizeof key, "error.%s", topic);
    return (int)number(gpu, key, strcmp(topic, "handle") ? number(gpu, "error.*", 0) : 0);
}

static void trace(const char *what) {
    const char *path = text(NOBODY, "trace", 0);
    FILE *file = path ? fopen(path, "a") : 0;
    if (file) fprintf(file, "%s\n", what), fclose(file);
}
