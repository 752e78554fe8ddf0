#!/bin/sh
# Boots a machine, as the first process of its namespaces:
#   machine.sh FOLDER IMAGE SHARED NAME ADDRESS/PREFIX ENDPOINT CERTIFICATE GATEWAY PROBED…
# FOLDER holds the machine's disk, which outlives a stop, and authorized_keys. The machine sees its
# own image, the programs of this one (/usr, copied on write), SHARED at /shared, and nothing else.
# At the PROBED addresses, which a controller of jobs asks, the GATEWAY answers by the CERTIFICATE.
set -eu
folder="$1" image="$2" shared="$3" name="$4" address="$5" endpoint="$6" certificate="$7" gateway="$8"
shift 8
here="$(dirname "$0")"

mount --make-rprivate /
root="$folder/disk"
layers="$folder/layers"

# usr is this machine's; etc and home/ubuntu are the image's; what is written stays in `layers`.
overlay() {
    mkdir -p "$root/$2" "$layers/$2/upper" "$layers/$2/work"
    chown --reference="$1" "$layers/$2/upper"
    chmod --reference="$1" "$layers/$2/upper"
    mount -t overlay overlay \
        -o "lowerdir=$1,upperdir=$layers/$2/upper,workdir=$layers/$2/work" "$root/$2"
}

mkdir -p "$root"
mount --bind "$root" "$root"
overlay /usr usr
overlay "$image/etc" etc
overlay "$image/home" home/ubuntu
for link in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$link" ] && [ ! -e "$root/$link" ]; then
        ln -s "usr/$link" "$root/$link"
    fi
done
(
    cd "$root"
    mkdir -p dev proc sys run root shared tmp var/tmp var/log var/lib opt mnt old
)
chmod 1777 "$root/tmp" "$root/var/tmp"
chmod 700 "$root/root"
ln -sfn /run "$root/var/run"
mount --bind "$shared" "$root/shared"
# What a machine compiles of Python, the next need not.
mkdir -p "$image/bytecode" "$root/opt/bytecode"
chmod 1777 "$image/bytecode"
mount --bind "$image/bytecode" "$root/opt/bytecode"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/run/sshd"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    if [ -e "/dev/$device" ]; then
        : >"$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    fi
done
# A bucket is mounted by a person, whom this machine's own device may not let in.
mknod -m 666 "$root/dev/fuse" c 10 229
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"

install "$here/rclone.sh" "$root/usr/local/bin/rclone"
install -D "$here/shutdown.sh" "$root/usr/local/sbin/shutdown"
: >"$root/run/offline-cloud-machine"
rm -f "$root/var/lib/powered-off"
ln -sfn ../proc/self/mounts "$root/etc/mtab"
install -m 644 "$certificate" "$root/etc/probe.pem"
hostname "$name"
printf '%s\n' "$name" >"$root/etc/hostname"
printf '127.0.0.1 localhost\n%s %s\n' "${address%/*}" "$name" >"$root/etc/hosts"
install -d -o 4242 -g 4242 -m 700 "$root/home/ubuntu/.ssh"
install -o 4242 -g 4242 -m 600 "$folder/authorized_keys" "$root/home/ubuntu/.ssh/authorized_keys"
if [ ! -e "$root/etc/ssh/machine_key" ]; then
    ssh-keygen -q -t ed25519 -N "" -f "$root/etc/ssh/machine_key"
fi

# The fleet moves the other end of the cable in here once this namespace is there.
until ip link show eth0 >/dev/null 2>&1; do
    sleep 0.05
done
ip link set lo up
ip addr add "$address" dev eth0
ip link set eth0 up
ip route add 169.254.169.254/32 dev eth0
for probed; do
    ip route add "$probed/32" via "$gateway"
done

cd "$root"
pivot_root . old
umount -l old
rmdir old
# The programs that end the machine which runs the tests, /usr being its own, are out of reach here:
# removed from this machine's layer alone, now that nothing of the other's can be seen.
for folder in /usr/sbin /usr/bin; do
    for program in poweroff reboot halt telinit init systemctl busctl loginctl shutdown; do
        rm -f "$folder/$program"
    done
done
for program in shutdown poweroff reboot halt; do
    ln -s /usr/local/sbin/shutdown "/usr/sbin/$program"
done
# Tables of users outlive a reboot, after which this starts what they have for it.
install -d -g crontab -m 1730 /var/spool/cron/crontabs
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/sbin/cron
# What a person's command on a machine has in its environment: where AWS answers, for every client.
# rclone thinks that each bucket of the provider AWS has a name of its own in DNS.
environment="AWS_ENDPOINT_URL=$endpoint RCLONE_S3_ENDPOINT=$endpoint RCLONE_S3_PROVIDER=Other"
environment="$environment SSL_CERT_FILE=/etc/probe.pem REQUESTS_CA_BUNDLE=/etc/probe.pem"
# As on the person's machine: cloud.py.
environment="$environment SKYPILOT_POD_MEMORY_GB_LIMIT=6 SKYPILOT_DISABLE_USAGE_COLLECTION=1"
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    /usr/sbin/sshd -D -e -f /dev/null -h /etc/ssh/machine_key \
    -o "SetEnv=$environment RAY_memory_monitor_refresh_ms=0 PYTHONPYCACHEPREFIX=/opt/bytecode" \
    -o UsePAM=no -o PasswordAuthentication=no -o MaxStartups=100:30:200 -o MaxSessions=200 \
    -o "Subsystem=sftp /usr/lib/openssh/sftp-server"
