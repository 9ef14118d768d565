#!/bin/sh
# Run once by the PostgreSQL image, when its data folder is empty: the state store lives beside Airflow's metadata.
set -eu
psql --set=ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\set password `cat /run/secrets/state_db_password`
CREATE ROLE replay_state LOGIN PASSWORD :'password';
CREATE DATABASE replay_state OWNER replay_state;
SQL
