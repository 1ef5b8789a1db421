/* The load generator of the benchmarks: one thread, epoll, loopback only.
 *
 *   loadgen tunnels COUNT CONCURRENCY   open tunnels, one echo through each, close; the rate and the latencies
 *   loadgen bulk BYTES                  one download through one tunnel
 *   loadgen idle COUNT CONCURRENCY      open tunnels, one echo through each, keep them until standard input ends
 *
 * Options before the mode:
 *   --proxy PORT        a proxy on 127.0.0.1; without it the origin is connected directly
 *   --origin PORT       the origin on 127.0.0.1
 *   --auth BASE64       a Basic Proxy-Authorization
 *   --payload FILE      what a tunnel sends first (a TLS ClientHello, so that a proxy that looks at one does its work)
 *   --deadline SECONDS  give up after so long (default 60)
 *
 * Each mode prints one JSON object on a line. A failed tunnel is counted, not retried.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_FDS 70000
#define HEAD_MAX 4096
#define PAYLOAD_MAX 2048
#define BULK_BUFFER (256 * 1024)

enum state { FREE, CONNECTING, HEAD, ECHO_BACK, HELD };

struct tunnel {
    enum state state;
    unsigned got; /* bytes of the proxy's answer, then of the echo */
    double began;
    char head[HEAD_MAX + 1];
};

static struct tunnel *tunnels[MAX_FDS];
static char payload[PAYLOAD_MAX], head[HEAD_MAX];
static size_t payload_size, head_size;
static int proxy_port, origin_port, epoll_fd;
static double deadline_s = 60, *latencies;
static unsigned long done, failed;
static const char *first_failure = "";
static char failure_text[64];

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int connect_to(int flags) {
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)(proxy_port ? proxy_port : origin_port)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0 || fd >= MAX_FDS) die("socket");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&addr, sizeof addr) != 0 && errno != EINPROGRESS) die("connect");
    return fd;
}

static void start_tunnel(void) {
    int fd = connect_to(SOCK_NONBLOCK);
    struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd};
    if (tunnels[fd] == NULL && (tunnels[fd] = malloc(sizeof(struct tunnel))) == NULL) die("malloc");
    tunnels[fd]->state = CONNECTING;
    tunnels[fd]->got = 0;
    tunnels[fd]->began = now();
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll_ctl");
}

static void expect_input(int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

/* Moves one tunnel on. Returns 0 while it goes on, 1 when its echo is back, -1 when it failed. */
static int step(int fd) {
    struct tunnel *tunnel = tunnels[fd];
    ssize_t n;
    switch (tunnel->state) {
    case CONNECTING:
        if (proxy_port) {
            if (write(fd, head, head_size) != (ssize_t)head_size) return -1;
            tunnel->state = HEAD;
        } else {
            if (write(fd, payload, payload_size) != (ssize_t)payload_size) return -1;
            tunnel->state = ECHO_BACK;
        }
        expect_input(fd);
        return 0;
    case HEAD:
        n = read(fd, tunnel->head + tunnel->got, HEAD_MAX - tunnel->got);
        if (n < 0 && errno == EAGAIN) return 0;
        if (n <= 0) return -1;
        tunnel->got += (unsigned)n;
        tunnel->head[tunnel->got] = 0;
        if (strstr(tunnel->head, "\r\n\r\n") == NULL) return tunnel->got < HEAD_MAX ? 0 : -1;
        if (tunnel->got < 12 || strncmp(tunnel->head + 9, "200", 3) != 0) {
            snprintf(failure_text, sizeof failure_text, "%.12s", tunnel->head);
            first_failure = failure_text;
            return -1;
        }
        tunnel->got = 0;
        tunnel->state = ECHO_BACK;
        return write(fd, payload, payload_size) == (ssize_t)payload_size ? 0 : -1;
    case ECHO_BACK:
        n = read(fd, tunnel->head, HEAD_MAX);
        if (n < 0 && errno == EAGAIN) return 0;
        if (n <= 0) return -1;
        tunnel->got += (unsigned)n;
        return tunnel->got >= payload_size ? 1 : 0;
    default: return 0;
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double percentile(double share) {
    if (done == 0) return 0;
    size_t index = (size_t)(share * (double)(done - 1) + 0.5);
    return latencies[index] * 1e3;
}

static void report(double seconds) {
    qsort(latencies, done, sizeof *latencies, by_value);
    printf("{\"done\": %lu, \"failed\": %lu, \"seconds\": %.4f, \"per_second\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
           "\"first_failure\": \"%s\"}\n",
           done, failed, seconds, seconds > 0 ? (double)done / seconds : 0, percentile(0.5), percentile(0.99), first_failure);
    fflush(stdout);
}

static void run_tunnels(unsigned long count, unsigned long concurrency, int keep) {
    struct epoll_event events[256];
    unsigned long started = 0, open_now = 0;
    double began = now();
    if ((latencies = calloc(count + 1, sizeof *latencies)) == NULL) die("calloc");
    while (done + failed < count && now() - began < deadline_s) {
        while (open_now < concurrency && started < count) {
            start_tunnel();
            started++;
            open_now++;
        }
        int ready = epoll_wait(epoll_fd, events, 256, 1000);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            struct tunnel *tunnel = tunnels[fd];
            if (tunnel->state == HELD) { /* closed by the proxy while it was meant to stay */
                epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
                continue;
            }
            int result = step(fd);
            if (result == 0) continue;
            if (result > 0) latencies[done++] = now() - tunnel->began;
            else failed++;
            open_now--;
            if (result > 0 && keep) {
                tunnel->state = HELD;
            } else {
                tunnel->state = FREE;
                close(fd);
            }
        }
    }
    report(now() - began);
}

static unsigned long count_alive(void) {
    unsigned long alive = 0;
    for (int fd = 0; fd < MAX_FDS; fd++) {
        char byte;
        if (tunnels[fd] == NULL || tunnels[fd]->state != HELD) continue;
        if (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) alive++;
    }
    return alive;
}

static void read_exactly(int fd, char *into, size_t size) {
    while (size > 0) {
        ssize_t n = read(fd, into, size);
        if (n <= 0) die("read");
        into += n;
        size -= (size_t)n;
    }
}

static void run_bulk(uint64_t bytes) {
    static char buffer[BULK_BUFFER];
    struct timeval limit = {.tv_sec = (time_t)deadline_s};
    char request[PAYLOAD_MAX + 8];
    uint64_t got = 0;
    int fd = connect_to(0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (proxy_port) {
        char answer[HEAD_MAX] = "";
        size_t size = 0;
        if (write(fd, head, head_size) != (ssize_t)head_size) die("write");
        while (size < 4 || memcmp(answer + size - 4, "\r\n\r\n", 4) != 0) {
            if (size >= HEAD_MAX - 1) die("answer too long");
            read_exactly(fd, answer + size++, 1);
        }
        if (strncmp(answer + 9, "200", 3) != 0) {
            fprintf(stderr, "refused: %.40s\n", answer);
            exit(1);
        }
    }
    memcpy(request, payload, payload_size);
    for (int i = 0; i < 8; i++) request[payload_size + (size_t)i] = (char)(bytes >> (56 - 8 * i));
    double began = now();
    if (write(fd, request, payload_size + 8) != (ssize_t)payload_size + 8) die("write");
    for (;;) {
        ssize_t n = read(fd, buffer, sizeof buffer);
        if (n < 0) die("read");
        if (n == 0) break;
        got += (uint64_t)n;
        if (now() - began > deadline_s) break;
    }
    double seconds = now() - began;
    printf("{\"bytes\": %llu, \"complete\": %s, \"seconds\": %.4f, \"mb_per_second\": %.1f}\n", (unsigned long long)got,
           got == bytes ? "true" : "false", seconds, (double)got / 1e6 / seconds);
}

static void load_payload(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, payload, sizeof payload);
    if (n <= 0) die(path);
    payload_size = (size_t)n;
    close(fd);
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"proxy", 1, 0, 'p'},   {"origin", 1, 0, 'o'},   {"auth", 1, 0, 'a'},
                                            {"payload", 1, 0, 'f'}, {"deadline", 1, 0, 'd'}, {0, 0, 0, 0}};
    const char *auth = NULL, *payload_path = NULL;
    struct rlimit limit;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'p': proxy_port = atoi(optarg); break;
        case 'o': origin_port = atoi(optarg); break;
        case 'a': auth = optarg; break;
        case 'f': payload_path = optarg; break;
        case 'd': deadline_s = atof(optarg); break;
        default: return 2;
        }
    }
    char **rest = argv + optind;
    int words = argc - optind;
    if (words < 2 || origin_port == 0 || payload_path == NULL) {
        fprintf(stderr, "usage: loadgen --origin PORT --payload FILE [--proxy PORT] [--auth BASE64] MODE ARGUMENTS\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    load_payload(payload_path);
    head_size = (size_t)snprintf(head, sizeof head, "CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s%s%s\r\n", origin_port,
                                 origin_port, auth ? "Proxy-Authorization: Basic " : "", auth ? auth : "", auth ? "\r\n" : "");
    if ((epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0) die("epoll_create1");
    if (strcmp(rest[0], "bulk") == 0) {
        run_bulk(strtoull(rest[1], NULL, 10));
    } else if (words == 3 && strcmp(rest[0], "tunnels") == 0) {
        run_tunnels(strtoul(rest[1], NULL, 10), strtoul(rest[2], NULL, 10), 0);
    } else if (words == 3 && strcmp(rest[0], "idle") == 0) {
        char byte;
        run_tunnels(strtoul(rest[1], NULL, 10), strtoul(rest[2], NULL, 10), 1);
        while (read(0, &byte, 1) > 0) {
        }
        printf("{\"alive\": %lu}\n", count_alive());
    } else {
        fprintf(stderr, "loadgen: unknown mode %s\n", rest[0]);
        return 2;
    }
    return 0;
}
