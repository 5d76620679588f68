/* The time of day of one process, moved by as many seconds as a file says.
 *
 * Loaded before the C library. CHAOS_CLOCK names a file of eight bytes, the number of seconds in the machine's byte order;
 * whoever writes to it moves the clock at once. The monotonic clock stays what it is: no machine moves it either. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *moved;

__attribute__((constructor)) static void find_file(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *bytes = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (bytes != MAP_FAILED)
        moved = bytes;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = (int)syscall(SYS_clock_gettime, clock, now);
    if (done == 0 && moved && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *moved;
    return done;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return (time_t)-1;
    if (result)
        *result = exact.tv_sec;
    return exact.tv_sec;
}
