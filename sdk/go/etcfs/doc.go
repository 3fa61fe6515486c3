// EtcFS clusters on AWS: a POSIX filesystem on a shared volume, with its metadata in etcd.
package etcfs
