package scylla

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gocql/gocql"
)

// tabletsOption returns what a new keyspace needs to take lightweight transactions. ScyllaDB before 2025.4 refuses them with
// tablets, which it has and prefers since 6.0; older ones and Cassandra do not know the option.
func tabletsOption(ctx context.Context, d *db) (string, error) {
	var version string
	err := d.query(ctx, "SELECT version FROM system.versions WHERE key = 'local'").Scan(&version)
	var refused gocql.RequestError
	switch {
	case errors.As(err, &refused) && refused.Code() == gocql.ErrCodeInvalid:
		return "", nil // Cassandra has no such table
	case err != nil:
		return "", err
	case tabletsWithoutLWT(version):
		return " AND tablets = {'enabled': false}", nil
	}
	return "", nil
}

// tabletsWithoutLWT tells whether a ScyllaDB version has tablets that take no lightweight transactions.
func tabletsWithoutLWT(version string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n < 2 {
		return false
	}
	if major >= 2000 { // Enterprise, and every release since 2025.1
		return major == 2024 && minor >= 2 || major == 2025 && minor < 4
	}
	return major >= 6
}

// holder says who migrates, for people.
func holder() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s, process %d", host, os.Getpid())
}
