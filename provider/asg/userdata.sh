#!/bin/sh
# Starts the bootstrap of an EtcFS node: fetches exactly the binary that this
# cluster was set up with, and runs it. Above this script, which is included
# unchanged, user data exports the node's settings and sets
#
#   bootstrap_url     where the binary is, s3://BUCKET/KEY
#   bootstrap_sha256  the checksum that it must have
#
# Everything else is the binary's work. It runs on Amazon Linux 2023, which
# ships the AWS CLI; safe to run again.
set -eu

binary=${ETCFS_ROOT:-}/usr/local/bin/etcfs-bootstrap
log_file=${ETCFS_ROOT:-}/var/log/etcfs-bootstrap.log
patience=300 # seconds: a new role's permissions may take a minute to arrive

# On a full disk, say, the log file is not written; that ends nothing.
log() {
	printf 'etcfs-bootstrap: %s\n' "$*" | tee -a "$log_file" >&2 || :
}

matches() {
	printf '%s  %s\n' "${bootstrap_sha256:?}" "$1" | sha256sum -c --status - 2>/dev/null
}

fetch() {
	aws s3 cp --only-show-errors --region "${ETCFS_REGION:?}" "${bootstrap_url:?}" "$binary.new" || return 1
	if ! matches "$binary.new"; then
		log "$bootstrap_url does not have the sha256 $bootstrap_sha256"
		rm -f "$binary.new"
		return 1
	fi
	chmod 0755 "$binary.new" && mv -f "$binary.new" "$binary"
}

# Tries until patience ends, after pauses that double up to 16 seconds and are
# stretched at random, so that nodes that boot together do not ask together.
fetch_patiently() {
	deadline=$(($(date +%s) + patience))
	pause=1
	until fetch; do
		[ "$(date +%s)" -lt "$deadline" ] || return 1
		log "fetching $bootstrap_url again"
		random=$(od -An -N1 -tu1 /dev/urandom | tr -d ' ')
		sleep $((pause + random % (pause + 1)))
		[ "$pause" -ge 16 ] || pause=$((pause * 2))
	done
}

# Without the binary, the stub itself has the group replace the instance:
# failing user data does not fail EC2's health checks.
give_up_instance() {
	metadata=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
	metadata=${metadata%/}
	token=$(curl -fsS --retry 5 --max-time 10 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$metadata/latest/api/token") &&
		instance=$(curl -fsS --retry 5 --max-time 10 -H "X-aws-ec2-metadata-token: $token" "$metadata/latest/meta-data/instance-id") || return 1
	abandon_launch || report_unhealthy
}

# A launch that waits for its hook ends with the hook: nobody looks at the health
# of an instance that is not in service yet.
abandon_launch() {
	[ -n "${ETCFS_LAUNCH_HOOK:-}" ] || return 1
	group=$(aws autoscaling describe-auto-scaling-instances --instance-ids "$instance" \
		--query 'AutoScalingInstances[0].AutoScalingGroupName' --output text --region "$ETCFS_REGION") &&
		aws autoscaling complete-lifecycle-action --auto-scaling-group-name "$group" --lifecycle-hook-name "$ETCFS_LAUNCH_HOOK" \
			--instance-id "$instance" --lifecycle-action-result ABANDON --region "$ETCFS_REGION"
}

report_unhealthy() {
	aws autoscaling set-instance-health --instance-id "$instance" --health-status Unhealthy \
		--no-should-respect-grace-period --region "$ETCFS_REGION"
}

mkdir -p "${binary%/*}" "${log_file%/*}"
if ! matches "$binary" && ! fetch_patiently; then
	log "gave up on $bootstrap_url"
	if [ "${ETCFS_ON_BOOTSTRAP_FAILURE:-replace}" != keep ]; then
		give_up_instance || log "could not have this instance replaced"
	fi
	exit 1
fi

# A bootstrap that was killed (by the kernel, short of memory, say) has decided
# nothing: it goes on where it was. Every other outcome is its own.
until "$binary" run; do
	status=$?
	[ "$status" -gt 128 ] || exit "$status"
	log "the bootstrap was killed, exit status $status: running it again"
	sleep 5
done
