/* The five figures of one rate and range with CRoaring, from the library inside pyroaring.
 *
 * Owns: the loops, with the numbers of benches/roaring.rs. Does not own: the library; its functions
 * come in as pointers, because it installs no headers.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* How often it serializes and deserializes; benches/roaring.rs does it as often. */
#define SHORT_TURNS 5

typedef struct {
    void *(*create)(uint32_t capacity);
    void (*add)(void *bitmap, uint32_t value);
    _Bool (*contains)(const void *bitmap, uint32_t value);
    size_t (*size)(const void *bitmap);
    size_t (*serialize)(const void *bitmap, char *bytes);
    void *(*deserialize)(const char *bytes, size_t length);
    uint64_t (*cardinality)(const void *bitmap);
    _Bool (*equals)(const void *one, const void *other);
    void (*destroy)(const void *bitmap);
} library;

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static uint32_t draw(uint64_t *state, uint64_t max) {
    uint64_t number = *state += 0x9e3779b97f4a7c15u;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
    number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
    number ^= number >> 31;
    return (uint32_t)(((unsigned __int128)number * max) >> 64);
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double median(double times[SHORT_TURNS]) {
    qsort(times, SHORT_TURNS, sizeof *times, compare);
    return times[SHORT_TURNS / 2];
}

/* Milliseconds of add, serialize, deserialize and contains, bytes, values; 0 where all is well. */
int measure(const library *croaring, uint64_t percent, uint64_t max, double result[6]) {
    uint64_t calls = max * percent / 100, state = 1, found = 0;
    void *bitmap = croaring->create(0);
    double started = now_ms();
    for (uint64_t call = 0; call < calls; call++) croaring->add(bitmap, draw(&state, max));
    result[0] = now_ms() - started;

    /* Each repetition uses fresh memory, as a program that reads or writes once does. */
    double times[SHORT_TURNS];
    size_t length = 0;
    char *written[SHORT_TURNS];
    for (int turn = 0; turn < SHORT_TURNS; turn++) {
        started = now_ms();
        length = croaring->size(bitmap);
        written[turn] = malloc(length);
        if (written[turn] == NULL) return 1;
        croaring->serialize(bitmap, written[turn]);
        times[turn] = now_ms() - started;
    }
    result[1] = median(times);

    void *copies[SHORT_TURNS];
    for (int turn = 0; turn < SHORT_TURNS; turn++) {
        started = now_ms();
        copies[turn] = croaring->deserialize(written[0], length);
        times[turn] = now_ms() - started;
        if (copies[turn] == NULL) return 2;
    }
    result[2] = median(times);
    void *read = copies[0];
    if (!croaring->equals(read, bitmap)) return 2;

    state = 2;
    started = now_ms();
    for (uint64_t call = 0; call < calls; call++) found += croaring->contains(read, draw(&state, max));
    result[3] = now_ms() - started;
    result[4] = (double)length;
    result[5] = (double)croaring->cardinality(bitmap);
    for (int turn = 0; turn < SHORT_TURNS; turn++) {
        croaring->destroy(copies[turn]);
        free(written[turn]);
    }
    croaring->destroy(bitmap);
    return found > calls;
}
