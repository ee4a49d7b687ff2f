package campaigns

import _ "embed"

//go:generate go test . -run TestSchemaIsThatOfTheTypes -update

// Schema is the JSON schema of a campaign file, for editors. It is generated from Spec: keys and rules from the tags,
// descriptions from the comments.
//
//go:embed campaign.schema.json
var Schema []byte
