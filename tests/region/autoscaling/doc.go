// Package autoscaling is the region's EC2 Auto Scaling: groups that launch and
// terminate instances until they have as many as are desired, health checks,
// lifecycle hooks, and the events of all that.
//
// Nothing is polled. Whatever changes a group (a call, an instance that
// changed its state, a heartbeat that ran out) brings it as near to its goal
// as it can come at once; launches go on side by side.
//
// As AWS has it: an instance that died by itself passes through the
// terminating hooks, too, after it is dead; its replacement is launched while
// it waits there. An instance that was never in service passes through them as
// well. A forced deletion of the group skips them.
//
// An instance refresh replaces instances one after the other: the next begins
// when the last one has left.
//
// Not modelled: more than one subnet per group, mixed instances and launch
// configurations, load balancers, scaling policies and cooldowns, protection
// from scale-in, standby, warm pools, maximum lifetimes, maintenance policies, and the permissions on EC2 that whoever makes a group
// needs. A parameter that is not modelled is refused by name.
package autoscaling
