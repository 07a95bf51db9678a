/* The thread pool.
 *
 * Tasks are handed out by an atomic counter, so a thread that another process slows down simply takes fewer. The calling
 * thread works too, and when no task is left it waits only for workers that are inside a task: a worker enters the
 * current job through `gate`, which the caller shuts, so one that is asleep or has lost its core is not waited for.
 * Waiting is a short spin and then sched_yield, which lets a worker that shares the caller's core finish. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#if defined(__SSE__)
#include <immintrin.h>
#define PAUSE() _mm_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ __volatile__("yield")
#else
#define PAUSE() ((void)0)
#endif

#define MAX_THREADS 256
#define LINE 64
#define SPINS 64                /* pauses between two looks at the clock */
#define PURE_SPIN_NS 100000     /* then sched_yield between looks; sooner gives a busy core away at every serial kernel */
#define IDLE_NS 150000          /* awake this long after the last job outside of a run */
#define IDLE_IN_RUN_NS 2000000  /* and this long within one */

typedef void (*task_function)(void *ctx, int64_t task);

/* gate: bit 63 is set while a job is open, the low bits count the workers inside, the bits between number the jobs. */
#define OPEN ((uint64_t)1 << 63)
#define INSIDE (((uint64_t)1 << 16) - 1)
#define JOB_STEP ((uint64_t)1 << 16)

static struct {
    _Alignas(LINE) _Atomic uint64_t gate;
    task_function fn; /* these three are written while the gate is shut and nobody is inside */
    void *ctx;
    int64_t n;
    _Alignas(LINE) _Atomic int64_t next;
    _Alignas(LINE) atomic_int busy;
    atomic_int runs;     /* graph runs in progress */
    atomic_int sleepers; /* workers that wait on `wake` */
    atomic_int stop;
    atomic_int used; /* a job was shared since the last fg_run_begin */
    int threads;     /* the number asked for; 0: not yet known */
    int workers;     /* started, written by the holder of `busy` */
    pthread_t worker[MAX_THREADS];
} pool;

static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned alarm_count; /* under sleep_lock: a change gets every sleeper up */

/* ---- how many threads ---- */

static int affinity_cores(void) {
#if defined(__linux__)
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (int)n;
}

#if defined(__linux__)
/* Cores allowed by one cgroup folder: quota / period, or a large number. */
static double folder_quota(const char *folder, int version) {
    char path[4352];
    double quota = -1, period = -1;
    snprintf(path, sizeof path, version == 2 ? "%s/cpu.max" : "%s/cpu.cfs_quota_us", folder);
    FILE *f = fopen(path, "r");
    if (!f) return 1e9;
    int got = fscanf(f, version == 2 ? "%lf %lf" : "%lf", &quota, &period); /* "max" does not scan */
    fclose(f);
    if (version == 1 && got == 1) {
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        f = fopen(path, "r");
        if (!f) return 1e9;
        if (fscanf(f, "%lf", &period) != 1) period = -1;
        fclose(f);
    }
    return quota > 0 && period > 0 ? quota / period : 1e9;
}

/* The least over the process's own cgroup and all above it. */
static double path_quota(const char *root, char *path, int version) {
    char folder[4224];
    double least = 1e9;
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s", root, path);
        double q = folder_quota(folder, version);
        least = q < least ? q : least;
        char *slash = strrchr(path, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

static double cgroup_cores(void) {
    char line[4096];
    double least = 1e9, q;
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f) return least;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        controllers++;
        if (!*controllers) {
            q = path_quota("/sys/fs/cgroup", path, 2);
        } else if (!strcmp(controllers, "cpu") || strstr(controllers, "cpu,") || strstr(controllers, ",cpu")) {
            q = path_quota("/sys/fs/cgroup/cpu", path, 1);
        } else {
            continue;
        }
        least = q < least ? q : least;
    }
    fclose(f);
    return least;
}
#else
static double cgroup_cores(void) { return 1e9; }
#endif

static int default_threads(void) {
    int n = affinity_cores();
    double quota = cgroup_cores();
    if (quota < n) n = (int)quota;
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

/* ---- fork ---- */

/* The child has only the thread that forked: it starts without workers. */
static void in_child(void) {
    atomic_store(&pool.gate, 0);
    atomic_store(&pool.busy, 0);
    atomic_store(&pool.runs, 0);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.stop, 0);
    pool.workers = 0;
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_cond_init(&wake, NULL);
}

static void set_up(void) {
    if (!pool.threads) pool.threads = default_threads();
    pthread_atfork(NULL, NULL, in_child);
}

/* ---- workers ---- */

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void do_tasks(task_function fn, void *ctx, int64_t n) {
    int64_t task;
    while ((task = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed)) < n) fn(ctx, task);
}

static int gate_open(uint64_t seen) {
    uint64_t g = atomic_load_explicit(&pool.gate, memory_order_acquire);
    return (g & OPEN) && ((g ^ seen) & ~INSIDE);
}

/* Sleeps until there is another job than `seen`, or an alarm. */
static void sleep_until_job(uint64_t seen) {
    pthread_mutex_lock(&sleep_lock);
    unsigned before = alarm_count;
    atomic_fetch_add(&pool.sleepers, 1);
    while (!gate_open(seen) && !atomic_load(&pool.stop) && alarm_count == before) {
        pthread_cond_wait(&wake, &sleep_lock);
    }
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&sleep_lock);
}

/* Waits for a job that this worker has not yet finished; `seen` is the gate it last went through. */
static void wait_for_job(uint64_t seen) {
    int64_t start = 0;
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            if (gate_open(seen) || atomic_load_explicit(&pool.stop, memory_order_relaxed)) return;
            PAUSE();
        }
        int64_t t = now_ns();
        if (!start) start = t;
        int64_t idle = t - start;
        if (idle > (atomic_load_explicit(&pool.runs, memory_order_relaxed) ? IDLE_IN_RUN_NS : IDLE_NS)) {
            sleep_until_job(seen);
            return;
        }
        if (idle > PURE_SPIN_NS) sched_yield();
    }
}

static void *work(void *unused) {
    uint64_t seen = 0;
    (void)unused;
#if defined(__SSE__)
    _mm_setcsr(0x1f80u); /* as in fg_kernel_run */
#endif
    while (!atomic_load_explicit(&pool.stop, memory_order_relaxed)) {
        uint64_t g = atomic_load_explicit(&pool.gate, memory_order_acquire);
        if (!(g & OPEN) || !((g ^ seen) & ~INSIDE)) {
            wait_for_job(seen);
            continue;
        }
        if (!atomic_compare_exchange_weak_explicit(&pool.gate, &g, g + 1, memory_order_acq_rel, memory_order_relaxed)) {
            continue;
        }
        do_tasks(pool.fn, pool.ctx, pool.n);
        atomic_fetch_sub_explicit(&pool.gate, 1, memory_order_release);
        seen = g & ~INSIDE; /* all of its tasks are taken */
    }
    return NULL;
}

/* The caller holds `busy`. Workers take no signals: those belong to the application's threads. */
static void start_workers(int wanted) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (pool.workers < wanted && !pthread_create(&pool.worker[pool.workers], NULL, work, NULL)) pool.workers++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void wake_workers(int most) {
    int n = atomic_load(&pool.sleepers);
    if (!n) return;
    pthread_mutex_lock(&sleep_lock);
    if (n <= most) pthread_cond_broadcast(&wake);
    else
        for (int i = 0; i < most; i++) pthread_cond_signal(&wake);
    pthread_mutex_unlock(&sleep_lock);
}

static void wake_all(void) {
    pthread_mutex_lock(&sleep_lock);
    alarm_count++;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&sleep_lock);
}

static void stop_workers(void) {
    atomic_store(&pool.stop, 1);
    wake_all();
    for (int i = 0; i < pool.workers; i++) pthread_join(pool.worker[i], NULL);
    pool.workers = 0;
    atomic_store(&pool.stop, 0);
}

/* ---- the interface ---- */

void fg_set_threads(int n) {
    pthread_once(&once, set_up);
    n = n < 1 ? default_threads() : n > MAX_THREADS ? MAX_THREADS : n;
    while (atomic_exchange_explicit(&pool.busy, 1, memory_order_acquire)) sched_yield();
    if (pool.workers > n - 1) stop_workers();
    pool.threads = n;
    atomic_store_explicit(&pool.busy, 0, memory_order_release);
}

int fg_get_threads(void) {
    pthread_once(&once, set_up);
    return pool.threads;
}

static void wait_for_workers(void) {
    int spins = 0;
    while (atomic_load_explicit(&pool.gate, memory_order_acquire) & INSIDE) {
        if (spins < 2000) {
            spins++;
            PAUSE();
        } else {
            sched_yield();
        }
    }
}

static void share(int64_t n, task_function fn, void *ctx) {
    int wanted = pool.threads - 1;
    if (pool.workers < wanted) start_workers(wanted);
    pool.fn = fn;
    pool.ctx = ctx;
    pool.n = n;
    atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
    uint64_t g = atomic_load_explicit(&pool.gate, memory_order_relaxed);
    atomic_store(&pool.gate, ((g + JOB_STEP) & ~INSIDE) | OPEN); /* in order with the load of `sleepers` below */
    if (atomic_load(&pool.sleepers)) wake_workers(n - 1 < wanted ? (int)(n - 1) : wanted);
    if (!atomic_load_explicit(&pool.used, memory_order_relaxed)) atomic_store(&pool.used, 1);
    do_tasks(fn, ctx, n);
    atomic_fetch_and_explicit(&pool.gate, ~OPEN, memory_order_acq_rel);
    wait_for_workers();
}

void fg_parallel_for(int64_t n, void (*fn)(void *ctx, int64_t task), void *ctx) {
    if (n > 1) {
        pthread_once(&once, set_up);
        if (pool.threads > 1 && !atomic_exchange_explicit(&pool.busy, 1, memory_order_acquire)) {
            share(n, fn, ctx);
            atomic_store_explicit(&pool.busy, 0, memory_order_release);
            return;
        }
    }
    for (int64_t i = 0; i < n; i++) fn(ctx, i);
}

/* Workers are woken at once only when the last run needed them: a run of small kernels alone should not cost a core. */
void fg_run_begin(void) {
    atomic_fetch_add(&pool.runs, 1);
    if (atomic_exchange(&pool.used, 0) && atomic_load(&pool.sleepers)) wake_all();
}

void fg_run_end(void) { atomic_fetch_sub(&pool.runs, 1); }
