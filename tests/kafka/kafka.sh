#!/usr/bin/env bash
# Real Apache Kafka (KRaft, combined mode) on 127.0.0.1 for tests and benchmarks: one or three nodes, no containers.
#
#   kafka.sh jars                         fetch the jars with Maven and make a class archive (halves the start time); once
#   kafka.sh start  DATA PORT [1|3]       format if new, start, wait until every node answers; prints the bootstrap address
#   kafka.sh stop   DATA                  SIGTERM, after 20 s SIGKILL
#   kafka.sh kill   DATA NODE             SIGKILL one node, as a crash would
#   kafka.sh revive DATA NODE             start one node again and wait until it answers
#   kafka.sh status DATA                  a line a node; exit 1 if one is down
#   kafka.sh wipe   DATA                  stop, then remove DATA (only if this script made it)
#
# PORT 0 picks free ports. Node N listens on PORT+P(N-1), its controller on the port after; P is KAFKA_PORTS. Environment:
#   KAFKA_LIBS   folder of jars           (default: target/kafka-libs of the project)
#   KAFKA_HEAP   -Xmx of each node        (default: 512m for one node, 384m for three)
#   KAFKA_OWNER  a process id: when that process ends, however it ends, the nodes are killed
#   KAFKA_EXTRA  file of properties appended to each node's at `start` (later lines win; @NODE@ becomes the node's number,
#                @PORT0@ its first port, @PORT1@ the next, and so on)
#   KAFKA_PORTS  ports of each node           (default: 2; more for the listeners of KAFKA_EXTRA)
#   KAFKA_FORMAT more arguments of StorageTool format, such as --add-scram (first start only)
#   KAFKA_JAVA, KAFKA_OPTS, KAFKA_WAIT    java binary, more JVM options, seconds to wait (default 60)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# One spelling of the folder: the class archive only serves the class path it was made with.
libs=$(realpath -m "${KAFKA_LIBS:-$here/../../target/kafka-libs}")
java=${KAFKA_JAVA:-java}
cluster_id=dGFjaG9ncmFwaC10ZXN0cw # any 16 bytes in base64url

die() { echo "kafka.sh: $*" >&2; exit 1; }
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 64; }
load() {
    data=$(cd "$1" 2>/dev/null && pwd) || die "no such data folder: $1"
    [[ -f $data/cluster ]] || die "$data was not made by this script"
    ports=2
    . "$data/cluster"
}
port_of() { echo $((port + ports * ($1 - 1))); }
pid_of() { cat "$data/n$1/pid" 2>/dev/null || echo 0; }
taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
all_free() { local p; for ((p = $1; p < $1 + ports * nodes; p++)); do ! taken "$p" || return 1; done; }

# Alive means: the recorded pid exists and is still this node's JVM (pids are reused).
alive() {
    local p; p=$(pid_of "$1")
    [[ $p != 0 ]] && { tr '\0' ' ' <"/proc/$p/cmdline"; } 2>/dev/null | grep -qF "$data/n$1/server.properties"
}

# A Metadata v1 request for no topics; the answer's first array is the list of live brokers. Prints its length.
brokers_seen() {
    timeout 2 bash -c '
        exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
        printf "\0\0\0\16\0\3\0\1\0\0\0\1\377\377\0\0\0\0" >&3
        head -c 12 <&3 | od -An -tu1 | awk "{ print \$12 }"' _ "$1" 2>/dev/null | grep . || echo 0
}

properties() { # $1 = node
    local n=$1 voters="" i isr=$((nodes == 1 ? 1 : 2))
    for ((i = 1; i <= nodes; i++)); do voters+="${voters:+,}$i@127.0.0.1:$(($(port_of "$i") + 1))"; done
    cat <<PROPERTIES
process.roles=broker,controller
node.id=$n
controller.quorum.voters=$voters
listeners=PLAINTEXT://127.0.0.1:$(port_of "$n"),CONTROLLER://127.0.0.1:$(($(port_of "$n") + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$(port_of "$n")
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
log.dirs=$data/n$n/log
auto.create.topics.enable=false
num.partitions=6
default.replication.factor=$nodes
min.insync.replicas=$isr
offsets.topic.replication.factor=$nodes
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=$nodes
transaction.state.log.min.isr=$isr
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=$nodes
share.coordinator.state.topic.min.isr=$isr
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=2000
group.consumer.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=1000
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=1000
controller.quorum.election.timeout.ms=1000
num.network.threads=2
num.io.threads=2
log.segment.bytes=268435456
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=16777216
PROPERTIES
    if [[ -f $data/extra ]]; then
        local words=(-e "s/@NODE@/$n/g")
        for ((i = 0; i < ports; i++)); do words+=(-e "s/@PORT$i@/$(($(port_of "$n") + i))/g"); done
        sed "${words[@]}" "$data/extra"
    fi
}

format() { # $1 = node
    # shellcheck disable=SC2086
    "$java" -cp "$libs/*" -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
        kafka.tools.StorageTool format -t "$cluster_id" -c "$data/n$1/server.properties" ${KAFKA_FORMAT:-} \
        >"$data/n$1/format.log" 2>&1 || { cat "$data/n$1/format.log" >&2; die "format of node $1 failed"; }
}

launch() { # $1 = node
    local n=$1 heap=384m archive=$libs/kafka.jsa
    if ((nodes == 1)); then heap=512m; fi
    if alive "$n"; then die "node $n already runs (pid $(pid_of "$n"))"; fi
    # shellcheck disable=SC2046,SC2086
    nohup "$java" -cp "$libs/*" "-Xmx${KAFKA_HEAP:-$heap}" -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError \
        $([[ ! -f $archive ]] || echo "-XX:SharedArchiveFile=$archive -Xlog:cds=off") ${KAFKA_OPTS:-} \
        -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true \
        -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info \
        kafka.Kafka "$data/n$n/server.properties" >>"$data/n$n/out.log" 2>&1 </dev/null &
    echo $! >"$data/n$n/pid"
    if [[ -n ${KAFKA_OWNER:-} ]]; then
        # By pid, not by `alive`: a node that has not become a JVM yet is none, and must not be taken for an orphan.
        (while kill -0 "$KAFKA_OWNER" && kill -0 "$(pid_of "$n")"; do sleep 1; done
            if ! kill -0 "$KAFKA_OWNER" && alive "$n"; then kill -9 "$(pid_of "$n")"; fi) >/dev/null 2>&1 </dev/null &
    fi
}

await() { # $1 = node, $2 = how many brokers it must see
    local n=$1 deadline=$((SECONDS + ${KAFKA_WAIT:-60}))
    until (($(brokers_seen "$(port_of "$n")") >= $2)); do
        # By pid, as above: on a busy machine it may take seconds to become a JVM.
        if ! kill -0 "$(pid_of "$n")" 2>/dev/null; then tail -n 20 "$data/n$n/out.log" >&2; die "node $n died while starting (log: $data/n$n/out.log)"; fi
        if ((SECONDS >= deadline)); then tail -n 20 "$data/n$n/out.log" >&2; die "node $n not ready after ${KAFKA_WAIT:-60} s"; fi
        sleep 0.1
    done
}

stop_all() {
    local n deadline=$((SECONDS + 20))
    for ((n = 1; n <= nodes; n++)); do if alive "$n"; then kill "$(pid_of "$n")"; fi; done
    for ((n = 1; n <= nodes; n++)); do
        while alive "$n"; do
            if ((SECONDS >= deadline)); then echo "kafka.sh: node $n did not stop, killing it" >&2; kill -9 "$(pid_of "$n")"; fi
            sleep 0.1
        done
        rm -f "$data/n$n/pid"
    done
}

case ${1:-} in
jars)
    command -v mvn >/dev/null || die "mvn not found"
    mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$libs"
    rm -f "$libs/kafka.jsa"
    scratch=$(mktemp -d)
    KAFKA_OPTS="-XX:ArchiveClassesAtExit=$libs/kafka.jsa -Xlog:cds=off -Xlog:cds+dynamic=off" "$0" start "$scratch/node" 0 >/dev/null
    "$0" wipe "$scratch/node"
    rmdir "$scratch"
    ls "$libs"/kafka_2.13-*.jar "$libs/kafka.jsa"
    ;;
start)
    [[ $# -ge 3 ]] || usage
    port=$3 nodes=${4:-1} ports=${KAFKA_PORTS:-2}
    [[ $nodes == 1 || $nodes == 3 ]] || die "one or three nodes, not $nodes"
    compgen -G "$libs/kafka_2.13-*.jar" >/dev/null || die "no jars in $libs: run '$0 jars' or set KAFKA_LIBS"
    mkdir -p "$2"
    data=$(cd "$2" && pwd)
    if [[ -f $data/cluster ]]; then
        . "$data/cluster"
        [[ ($3 == 0 || $port == "$3") && $nodes == "${4:-1}" ]] || die "$data holds $nodes node(s) on port $port"
    elif [[ -n $(ls -A "$data") ]]; then
        die "$data is not empty and was not made by this script"
    fi
    if [[ $port == 0 ]]; then
        step=$((ports * nodes))
        for _ in {1..50}; do port=$((20000 + RANDOM % (10000 / step) * step)); if all_free "$port"; then break; fi; done
    fi
    all_free "$port" || die "a port from $port to $((port + ports * nodes - 1)) is taken"
    echo "port=$port nodes=$nodes ports=$ports" >"$data/cluster"
    if [[ -n ${KAFKA_EXTRA:-} ]]; then cp "$KAFKA_EXTRA" "$data/extra"; fi
    for ((n = 1; n <= nodes; n++)); do
        mkdir -p "$data/n$n"
        properties "$n" >"$data/n$n/server.properties"
        if [[ ! -f $data/n$n/log/meta.properties ]]; then format "$n"; fi
    done
    trap 'if (($? != 0)); then stop_all; fi' EXIT
    boot=""
    for ((n = 1; n <= nodes; n++)); do launch "$n"; boot+="${boot:+,}127.0.0.1:$(port_of "$n")"; done
    for ((n = 1; n <= nodes; n++)); do await "$n" "$nodes"; done
    echo "$boot"
    ;;
stop | wipe)
    [[ $# == 2 ]] || usage
    load "$2"
    stop_all
    if [[ $1 == wipe ]]; then rm -rf "$data"; fi
    ;;
kill)
    [[ $# == 3 ]] || usage
    load "$2"
    alive "$3" || die "node $3 is not running"
    kill -9 "$(pid_of "$3")"
    ;;
revive)
    [[ $# == 3 ]] || usage
    load "$2"
    [[ -d $data/n$3 ]] || die "no node $3 in $data"
    launch "$3"
    await "$3" 1
    ;;
status)
    [[ $# == 2 ]] || usage
    load "$2"
    rc=0
    for ((n = 1; n <= nodes; n++)); do
        if alive "$n"; then
            echo "node $n pid $(pid_of "$n") port $(port_of "$n") rss $(awk '/VmRSS/ { print int($2 / 1024) }' "/proc/$(pid_of "$n")/status") MiB sees $(brokers_seen "$(port_of "$n")") broker(s)"
        else
            echo "node $n down"
            rc=1
        fi
    done
    exit $rc
    ;;
*) usage ;;
esac
