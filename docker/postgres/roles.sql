-- The roles that the service, the workers and the backup use, with what each needs and no more. Run
-- it as the owner of the tables after each `autotune db upgrade`; again is no harm:
--   psql DATABASE_URL -v secrets=/run/secrets -f roles.sql
-- The passwords are the files service_password, worker_password and backup_password in that folder.
\set ON_ERROR_STOP on
\set service_password `cat :'secrets'/service_password`
\set worker_password `cat :'secrets'/worker_password`
\set backup_password `cat :'secrets'/backup_password`

BEGIN; -- all or nothing, and one after the other: who works meanwhile notices nothing
DO $$ BEGIN PERFORM pg_advisory_xact_lock(8700); END $$;
SELECT format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE', name)
FROM unnest(ARRAY['autotune_service', 'autotune_worker', 'autotune_backup']) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec
ALTER ROLE autotune_service PASSWORD :'service_password';
ALTER ROLE autotune_worker PASSWORD :'worker_password';
ALTER ROLE autotune_backup PASSWORD :'backup_password';

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO autotune_service, autotune_worker;
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM autotune_service, autotune_worker;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO autotune_service, autotune_worker;

-- Both read all that is tuned; only the service reads tokens, and neither makes one.
GRANT SELECT ON autotune_alembic_version, autotune_kernels, autotune_keys, autotune_trials,
  autotune_profiles, autotune_records, autotune_audit, autotune_searches,
  autotune_checks, autotune_misses, autotune_snapshots, autotune_pins, autotune_jobs,
  autotune_job_logs, autotune_candidates, autotune_known_configs, autotune_workloads,
  autotune_calibrations
TO autotune_service, autotune_worker;
GRANT SELECT ON autotune_tokens TO autotune_service;

-- Both add results; what was added stays.
GRANT INSERT ON autotune_kernels, autotune_keys, autotune_trials, autotune_records, autotune_audit,
  autotune_checks, autotune_snapshots
TO autotune_service, autotune_worker;
GRANT UPDATE ON autotune_checks, autotune_jobs TO autotune_service, autotune_worker;
GRANT UPDATE (until_id) ON autotune_records TO autotune_service, autotune_worker; -- refused claims
GRANT UPDATE (record_id) ON autotune_candidates TO autotune_service;
GRANT INSERT, UPDATE (text, earlier, ended) ON autotune_job_logs TO autotune_service, autotune_worker;
GRANT UPDATE (trial_count, newest_trial, best_us, default_us) ON autotune_keys
TO autotune_service, autotune_worker; -- sums of its trials

GRANT INSERT ON autotune_jobs, autotune_pins, autotune_misses,
  autotune_candidates
TO autotune_service;
GRANT UPDATE ON autotune_pins, autotune_misses TO autotune_service;
GRANT DELETE ON autotune_misses TO autotune_service;
GRANT INSERT, UPDATE ON autotune_searches, autotune_workloads, autotune_profiles TO autotune_worker;
GRANT INSERT, UPDATE (until_id) ON autotune_pins TO autotune_worker; -- with what it has found
GRANT UPDATE (state, finding, decided_at) ON autotune_candidates TO autotune_worker;
GRANT UPDATE (spec) ON autotune_kernels TO autotune_worker; -- in the place of a pushed one
GRANT UPDATE (kind, outcome, time_us) ON autotune_trials TO autotune_worker; -- a wrong result
GRANT DELETE ON autotune_trials TO autotune_worker; -- pushed ones, for what it has tried itself

GRANT pg_read_all_data TO autotune_backup;
COMMIT;
