// Package iam is the region's Identity and Access Management: roles with their
// trust policies, inline and managed policies, instance profiles, temporary
// credentials, and the judge of every call.
//
// The judge evaluates identity-based policies as IAM does: an explicit deny
// wins, and what nothing allows is denied. It knows Action and NotAction,
// Resource and NotResource with wildcards and policy variables, and the
// condition operators listed in condition.go. A policy that says something the
// judge does not know is refused when it is put, never guessed at.
//
// Not modelled: users and groups besides the one administrator, customer
// managed policies, permissions boundaries, session policies, organisations,
// and IAM's eventual consistency (a change is seen at once).
package iam
