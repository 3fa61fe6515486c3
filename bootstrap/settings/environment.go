package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// prefix starts the name of every variable that this package owns.
const prefix = "ETCFS_"

// Encode returns the settings as environment variables, NAME=value, in the
// order of the fields. It refuses settings that Validate refuses, so that no
// user data can be rendered that a node would not accept.
func (s Settings) Encode() ([]string, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	var env []string
	value := reflect.ValueOf(s)
	for i, variable := range variables() {
		if text := fmt.Sprint(value.Field(i).Interface()); text != "" {
			env = append(env, variable+"="+text)
		}
	}
	return env, nil
}

// Decode reads settings out of environment variables, NAME=value, on top of
// the defaults. Variables without the ETCFS_ prefix are not its business; one
// with the prefix that is no setting is refused by name, as it is most likely
// a misspelt one.
func Decode(environ []string) (Settings, error) {
	s := Defaults()
	value := reflect.ValueOf(&s).Elem()
	names := variables()
	var problems []Problem
	for _, entry := range environ {
		variable, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(variable, prefix) || variable == RootVariable {
			continue
		}
		i := slices.Index(names, variable)
		if i < 0 {
			problems = append(problems, Problem{variable, "is not a setting of this version of etcfs-bootstrap"})
			continue
		}
		if text == "" {
			continue // an unset optional, as the Terraform module writes it
		}
		if reason := set(value.Field(i), text); reason != "" {
			problems = append(problems, Problem{variable, reason})
		}
	}
	if problems != nil {
		return Settings{}, &InvalidError{problems}
	}
	if err := s.Validate(); err != nil {
		return Settings{}, err
	}
	return s, nil
}

func set(field reflect.Value, text string) (reason string) {
	if field.Type() == reflect.TypeFor[time.Duration]() {
		duration, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Sprintf("%q is not a duration such as 10s", text)
		}
		field.SetInt(int64(duration))
		return ""
	}
	field.SetString(text)
	return ""
}

// variables lists the variable of each field, in the order of the fields.
func variables() []string {
	t := reflect.TypeFor[Settings]()
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("env")
	}
	return names
}
