/* A loopback origin for the benchmarks: one thread, epoll, two ports.
 *
 *   origin ECHO_PORT BULK_PORT
 *
 * The echo port sends back whatever it gets. The bulk port reads one TLS record (the load generator's ClientHello, which
 * a proxy may want to look at) and eight bytes, a big-endian count; then it sends that many bytes and closes.
 * Port 0 takes any free port; both are printed on the first line of standard output. End of standard input ends it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_FDS 70000
#define HEAD_MAX 4096
#define CHUNK (1 << 20)

enum kind { NONE, ECHO_LISTENER, BULK_LISTENER, ECHO, BULK, STDIN };

struct peer {
    enum kind kind;
    unsigned got;        /* bulk: bytes of the request read so far */
    int sending;         /* bulk: the request is complete */
    uint64_t left;       /* bulk: bytes still to send */
    unsigned char *head; /* bulk: the request */
};

static struct peer peers[MAX_FDS];
static char chunk[CHUNK];
static int epoll_fd;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void watch(int fd, enum kind kind, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (fd >= MAX_FDS) {
        close(fd);
        return;
    }
    peers[fd] = (struct peer){.kind = kind};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll_ctl");
}

static void drop(int fd) {
    free(peers[fd].head);
    peers[fd] = (struct peer){.kind = NONE};
    close(fd);
}

static int listen_on(int port, enum kind kind) {
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof addr;
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&addr, sizeof addr) != 0 || listen(fd, 4096) != 0) die("listen");
    getsockname(fd, (struct sockaddr *)&addr, &size);
    watch(fd, kind, EPOLLIN);
    return ntohs(addr.sin_port);
}

static void on_accept(int listener, enum kind kind) {
    for (;;) {
        int one = 1;
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        watch(fd, kind, EPOLLIN);
    }
}

static void on_echo(int fd) {
    char small[16384];
    ssize_t n = read(fd, small, sizeof small);
    if (n < 0 && errno == EAGAIN) return;
    /* Small messages fit a socket buffer that the last answer has left; one that does not ends the connection. */
    if (n <= 0 || write(fd, small, (size_t)n) != n) drop(fd);
}

static void on_bulk_send(int fd, struct peer *peer) {
    while (peer->left > 0) {
        size_t want = peer->left < CHUNK ? (size_t)peer->left : CHUNK;
        ssize_t n = write(fd, chunk, want);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            drop(fd);
            return;
        }
        peer->left -= (uint64_t)n;
        if (n < (ssize_t)want) return; /* the buffer is full: let other connections have a turn */
    }
    drop(fd);
}

static void on_bulk_read(int fd, struct peer *peer) {
    if (peer->head == NULL && (peer->head = malloc(HEAD_MAX)) == NULL) die("malloc");
    ssize_t n = read(fd, peer->head + peer->got, HEAD_MAX - peer->got);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        drop(fd);
        return;
    }
    peer->got += (unsigned)n;
    if (peer->got < 5) return;
    unsigned record = 5 + ((unsigned)peer->head[3] << 8 | peer->head[4]);
    if (record + 8 > HEAD_MAX) {
        drop(fd);
        return;
    }
    if (peer->got < record + 8) return;
    for (unsigned i = 0; i < 8; i++) peer->left = peer->left << 8 | peer->head[record + i];
    peer->sending = 1;
    struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

int main(int argc, char **argv) {
    struct rlimit limit;
    struct epoll_event events[256];
    if (argc != 3) {
        fprintf(stderr, "usage: origin ECHO_PORT BULK_PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    memset(chunk, 'x', sizeof chunk);
    if ((epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0) die("epoll_create1");
    int echo_port = listen_on(atoi(argv[1]), ECHO_LISTENER);
    int bulk_port = listen_on(atoi(argv[2]), BULK_LISTENER);
    watch(0, STDIN, EPOLLIN);
    printf("%d %d\n", echo_port, bulk_port);
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(epoll_fd, events, 256, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            struct peer *peer = &peers[fd];
            switch (peer->kind) {
            case NONE: break;
            case ECHO_LISTENER: on_accept(fd, ECHO); break;
            case BULK_LISTENER: on_accept(fd, BULK); break;
            case ECHO: on_echo(fd); break;
            case BULK: peer->sending ? on_bulk_send(fd, peer) : on_bulk_read(fd, peer); break;
            case STDIN:
                if (read(0, chunk, sizeof chunk) <= 0) return 0;
                break;
            }
        }
    }
}
