-- Policies, rollouts and what each node was told of them: few, and always read whole.
CREATE TABLE document (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
